package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	"k8s.io/kubernetes/pkg/registry/autoscaling/horizontalpodautoscaler"
)

const namespace = "ns"

// apiLine is a line of an api-* file, without its answer.
type apiLine struct {
	In            json.RawMessage       `json:"in"`
	Old           json.RawMessage       `json:"old"`
	Op            string                `json:"op"`
	From          string                `json:"from"`
	LabelSelector *metav1.LabelSelector `json:"labelSelector"`
	LabelSets     []labels.Set          `json:"labelSets"`
}

// labelSets are what selectors are matched against: those of the last line that had any.
var labelSets []labels.Set

// stored decodes a manifest as the API server does: defaulted and converted.
func stored(manifest []byte) (runtime.Object, error) {
	return runtime.Decode(legacyscheme.Codecs.UniversalDecoder(autoscaling.SchemeGroupVersion), manifest)
}

func hpa(manifest []byte) *autoscaling.HorizontalPodAutoscaler {
	object, err := stored(manifest)
	if err != nil {
		panic(fmt.Sprintf("%v: %.200s", err, manifest))
	}
	return object.(*autoscaling.HorizontalPodAutoscaler)
}

func defaulted(given *apiLine) map[string]any {
	object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(given.In, nil, nil)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	legacyscheme.Scheme.Default(object)
	return map[string]any{"out": object}
}

func converted(given *apiLine) map[string]any {
	versions := []string{"v1", "v2"}
	names := []string{"v1", "v2Again"}
	if given.From == "v1" {
		versions, names = []string{"v2", "v1"}, []string{"v2", "v1Again"}
	}
	answer, text := map[string]any{}, []byte(given.In)
	for index, version := range versions {
		object, err := stored(text)
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
		codec := legacyscheme.Codecs.LegacyCodec(schema.GroupVersion{Group: autoscaling.GroupName, Version: version})
		if text, err = runtime.Encode(codec, object); err != nil {
			return map[string]any{"error": err.Error()}
		}
		answer[names[index]] = json.RawMessage(text)
	}
	return answer
}

// validated does what the API server does with a creation, an update or an update of the status.
func validated(given *apiLine) map[string]any {
	object := hpa(given.In)
	ctx := genericapirequest.WithNamespace(context.Background(), namespace)
	info := &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: autoscaling.GroupName, APIVersion: "v2", Resource: "horizontalpodautoscalers",
	}
	if given.Op == "status" {
		info.Subresource = "status"
	}
	ctx = genericapirequest.WithRequestInfo(ctx, info)
	answer := map[string]any{}
	var found field.ErrorList
	switch given.Op {
	case "create":
		strategy := horizontalpodautoscaler.Strategy
		strategy.PrepareForCreate(ctx, object)
		answer["handwritten"] = shown(strategy.Validate(ctx, object))
		found = rest.ValidateCreate(ctx, object, strategy)
		answer["generation"] = object.Generation
	case "update":
		strategy, old := horizontalpodautoscaler.Strategy, hpa(given.Old)
		prepare(ctx, strategy, object, old)
		answer["handwritten"] = shown(strategy.ValidateUpdate(ctx, object, old))
		found = rest.ValidateUpdate(ctx, object, old, strategy)
		answer["generation"] = object.Generation
	default:
		strategy, old := horizontalpodautoscaler.StatusStrategy, hpa(given.Old)
		prepare(ctx, strategy, object, old)
		found = rest.ValidateUpdate(ctx, object, old, strategy)
	}
	answer["message"] = ""
	if found = inOrder(found); len(found) > 0 {
		kind := schema.GroupKind{Group: autoscaling.GroupName, Kind: "HorizontalPodAutoscaler"}
		answer["message"] = errors.NewInvalid(kind, object.Name, found).Error()
	}
	answer["errors"] = once(shown(found))
	return answer
}

// prepare does what rest.BeforeUpdate does before it validates.
func prepare(ctx context.Context, strategy rest.RESTUpdateStrategy, object, old *autoscaling.HorizontalPodAutoscaler) {
	object.Generation = old.Generation
	strategy.PrepareForUpdate(ctx, object, old)
	if object.UID == "" {
		object.UID = old.UID
	}
	if !old.CreationTimestamp.IsZero() {
		object.CreationTimestamp = old.CreationTimestamp
	}
	if !old.DeletionTimestamp.IsZero() {
		object.DeletionTimestamp = old.DeletionTimestamp
	}
	if old.DeletionGracePeriodSeconds != nil && object.DeletionGracePeriodSeconds == nil {
		object.DeletionGracePeriodSeconds = old.DeletionGracePeriodSeconds
	}
}

const onlyOne = "must populate the given metric source only"

// inOrder sorts what upstream finds in the order of a map: the superfluous sources of a metric.
func inOrder(found field.ErrorList) field.ErrorList {
	for first := 0; first < len(found); first++ {
		last := first
		for last < len(found) && found[last].Detail == onlyOne {
			last++
		}
		slices.SortStableFunc(found[first:last], func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
		first = max(first, last-1)
	}
	return found
}

func shown(found field.ErrorList) []map[string]string {
	lines := []map[string]string{}
	for _, each := range inOrder(found) {
		lines = append(lines, map[string]string{
			"type": string(each.Type), "field": each.Field, "detail": each.Detail, "string": each.Error(),
		})
	}
	return lines
}

func once(lines []map[string]string) []map[string]string {
	seen := map[string]bool{}
	return slices.DeleteFunc(lines, func(line map[string]string) bool {
		before := seen[line["string"]]
		seen[line["string"]] = true
		return before
	})
}

func selected(given *apiLine, raw map[string]json.RawMessage) map[string]any {
	answer := map[string]any{}
	var selector labels.Selector
	var err error
	if _, isObject := raw["labelSelector"]; isObject {
		answer["printed"] = fmt.Sprintf("%+v", given.LabelSelector)
		answer["formatted"] = metav1.FormatLabelSelector(given.LabelSelector)
		selector, err = metav1.LabelSelectorAsSelector(given.LabelSelector)
	} else {
		var text string
		decode(given.In, &text)
		selector, err = labels.Parse(text)
	}
	if err != nil {
		answer["error"] = err.Error()
		return answer
	}
	answer["string"], answer["empty"] = selector.String(), selector.Empty()
	matches := []int{}
	for index, set := range labelSets {
		if selector.Matches(set) {
			matches = append(matches, index)
		}
	}
	answer["matches"] = matches
	return answer
}

// apiQuestion reads a line of an api-* file.
func apiQuestion(line []byte, raw map[string]json.RawMessage) func() map[string]any {
	given := &apiLine{}
	decode(line, given)
	switch {
	case given.LabelSets != nil:
		labelSets = given.LabelSets
		return func() map[string]any { return nil }
	case given.Op != "":
		return func() map[string]any { return validated(given) }
	case given.From != "":
		return func() map[string]any { return converted(given) }
	case raw["labelSelector"] != nil || (given.In != nil && given.In[0] == '"'):
		return func() map[string]any { return selected(given, raw) }
	default:
		return func() map[string]any { return defaulted(given) }
	}
}
