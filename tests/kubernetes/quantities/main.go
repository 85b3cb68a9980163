// Answers about quantities: a line of JSON in, [text, other text], a line of JSON out.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"quantities/resource"
)

func shown(q resource.Quantity) map[string]any {
	number, suffix := q.CanonicalizeBytes(nil)
	return map[string]any{
		"string":    q.String(),
		"canonical": string(number) + string(suffix),
		"format":    string(q.Format),
		"milli":     strconv.FormatInt(q.MilliValue(), 10),
		"value":     strconv.FormatInt(q.Value(), 10),
		"sign":      q.Sign(),
		"float":     strconv.FormatFloat(q.AsApproximateFloat64(), 'g', -1, 64),
	}
}

func main() {
	lines, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var texts [2]string
		if err := json.Unmarshal(lines.Bytes(), &texts); err != nil {
			panic(err)
		}
		answer := map[string]any{}
		first, err := resource.ParseQuantity(texts[0])
		second, other := resource.ParseQuantity(texts[1])
		switch {
		case err != nil:
			answer["error"] = err.Error()
		default:
			answer["first"] = shown(first)
			if other == nil {
				answer["cmp"] = first.Cmp(second)
				first.Add(second)
				answer["sum"] = shown(first)
			}
		}
		line, _ := json.Marshal(answer)
		fmt.Fprintln(out, string(line))
	}
}
