//go:build !before1.37

package podautoscaler

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
)

// firstNames names the first HPAs in the order of their names where upstream names any.
type firstNames struct{ hpaSelectorTracker }

func (t firstNames) HPAsMatchingPods(namespace string, pods []*v1.Pod, limit int) []selectors.Key {
	found := t.hpaSelectorTracker.HPAsMatchingPods(namespace, pods, 0)
	slices.SortFunc(found, before)
	return found[:min(limit, len(found))]
}

func (a *HorizontalController) trackSelectors() {
	a.selectorTracker = firstNames{newHPASelectorStore()}
	a.consistencyStore = consistencyutil.NewNoopConsistencyStore()
}

func (a *HorizontalController) registerHPA(key selectors.Key) {
	a.selectorTracker.PutIfAbsent(key.Namespace, key, labels.Nothing())
}

func (a *HorizontalController) unregisterHPA(key selectors.Key) {
	a.selectorTracker.Delete(key.Namespace, key)
}
