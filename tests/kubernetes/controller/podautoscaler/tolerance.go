//go:build !before1.33

package podautoscaler

import (
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

// newCalculator makes a replica calculator, which is told the tolerances in each call.
func newCalculator(api metricsclient.MetricsClient, pods corelisters.PodLister, _ float64, initialization, delay time.Duration) *ReplicaCalculator {
	return NewReplicaCalculator(api, pods, initialization, delay)
}

func (a *HorizontalController) useCalculator(calculator *ReplicaCalculator, tolerance float64) {
	a.replicaCalc, a.tolerance = calculator, tolerance
}
