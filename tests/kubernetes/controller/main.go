// Upstream's answers: lines of cases on stdin (scenarios of the controller, calculations of one metric), the same lines
// with the answers of the compiled code of this version of Kubernetes on stdout.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/synctest"

	"controller/podautoscaler"
)

const longestLine = 1 << 30

func decode(line []byte, into any) {
	if err := json.Unmarshal(line, into); err != nil {
		panic(fmt.Sprintf("%v: %.200s", err, line))
	}
}

func encode(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// answer puts upstream's answer into a case; what the program does not read of it stays as it is. A case that ends
// upstream with a panic has the text of that as its only answer.
func answer(line []byte) (given map[string]json.RawMessage) {
	decode(line, &given)
	ask := question(line, given)
	defer func() {
		if cause := recover(); cause != nil {
			given["panic"] = encode(fmt.Sprint(cause))
		}
	}()
	for key, value := range ask() {
		given[key] = encode(value)
	}
	return given
}

// question reads what a case is about; what it returns asks upstream.
func question(line []byte, given map[string]json.RawMessage) func() map[string]any {
	if given["response"] != nil {
		return metricsQuestion(line)
	}
	if given["ticks"] == nil && given["currentReplicas"] == nil {
		return apiQuestion(line, given)
	}
	if given["ticks"] == nil {
		var calculation podautoscaler.Calculation
		decode(line, &calculation)
		return func() map[string]any { return map[string]any{"out": podautoscaler.Calculate(&calculation)} }
	}
	var scenario podautoscaler.Scenario
	decode(line, &scenario)
	var inputs []map[string]json.RawMessage
	decode(given["ticks"], &inputs)
	return func() map[string]any {
		outs, memory := podautoscaler.Play(&scenario)
		ticks := make([]map[string]any, len(outs))
		for index, out := range outs {
			ticks[index] = map[string]any{"in": inputs[index]["in"], "out": out}
		}
		return map[string]any{"ticks": ticks, "memory": memory}
	}
}

// In a bubble of synctest the clock starts at 2000-01-01T00:00:00Z and moves only when the program sleeps.
func answerAll(t *testing.T, answers io.Writer) {
	lines, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(answers)
	defer out.Flush()
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var answered map[string]json.RawMessage
		synctest.Test(t, func(*testing.T) { answered = answer(lines.Bytes()) })
		fmt.Fprintln(out, string(encode(answered)))
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}

func main() {
	answers := os.Stdout
	os.Stdout = os.Stderr // for what the testing package says at its end
	every := func(string, string) (bool, error) { return true, nil }
	test := func(t *testing.T) { answerAll(t, answers) }
	testing.Main(every, []testing.InternalTest{{Name: "answers", F: test}}, nil, nil)
}
