// Answers of Go's own packages about the texts in rules of prometheus-adapter: a line of JSON in, a line of JSON out.
// In is [pattern, text, template] of a regular expression, or [query] of a template for a query.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"text/template"
)

type query struct {
	Series, LabelMatchers string
	LabelValuesByName     map[string]string
	GroupBy               string
	GroupBySlice          []string
}

func expanded(pattern, text, template string) map[string]any {
	found, err := regexp.Compile(pattern)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	answer := map[string]any{"groups": found.NumSubexp(), "text": nil}
	if match := found.FindStringSubmatchIndex(text); match != nil {
		answer["text"] = string(found.ExpandString(nil, template, text, match))
	}
	return answer
}

func filled(text string) map[string]any {
	found, err := template.New("metrics-query").Delims("<<", ">>").Parse(text)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	values := query{"series", "pod=\"a\"", map[string]string{"pod": "a", "namespace": "shop"}, "pod", []string{"pod"}}
	var out strings.Builder
	if err := found.Execute(&out, values); err != nil {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{"text": out.String()}
}

func main() {
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for lines.Scan() {
		var given []string
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		answer := map[string]any{}
		if len(given) == 1 {
			answer = filled(given[0])
		} else {
			answer = expanded(given[0], given[1], given[2])
		}
		if err := out.Encode(answer); err != nil {
			panic(err)
		}
	}
}
