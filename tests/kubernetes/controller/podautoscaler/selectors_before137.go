//go:build before1.37

package podautoscaler

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
)

var horizontalGroupResource = schema.GroupResource{Group: "autoscaling", Resource: "horizontalpodautoscalers"}

// inOrder is put around the list of HPAs that select the same pods.
func inOrder(found []selectors.Key) []selectors.Key {
	slices.SortFunc(found, before)
	return found
}

func (a *HorizontalController) trackSelectors() { a.hpaSelectors = selectors.NewBiMultimap() }

func (a *HorizontalController) registerHPA(key selectors.Key) {
	if !a.hpaSelectors.SelectorExists(key) {
		a.hpaSelectors.PutSelector(key, labels.Nothing())
	}
}

func (a *HorizontalController) unregisterHPA(key selectors.Key) { a.hpaSelectors.DeleteSelector(key) }
