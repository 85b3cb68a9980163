//go:build before1.33

package podautoscaler

import (
	"context"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

// Tolerances are those of each direction since 1.33; before, the calculator has one for both.
type Tolerances struct{ scaleDown, scaleUp float64 }

// calculatorOfOneBand takes the calls as they are since 1.33.
type calculatorOfOneBand struct{ *ReplicaCalculator }

func newCalculator(api metricsclient.MetricsClient, pods corelisters.PodLister, tolerance float64, initialization, delay time.Duration) *calculatorOfOneBand {
	return &calculatorOfOneBand{NewReplicaCalculator(api, pods, tolerance, initialization, delay)}
}

func (a *HorizontalController) useCalculator(calculator *calculatorOfOneBand, _ float64) {
	a.replicaCalc = calculator.ReplicaCalculator
}

func (c *calculatorOfOneBand) GetResourceReplicas(ctx context.Context, current, target int32, resource v1.ResourceName, _ Tolerances, namespace string, selector labels.Selector, container string) (int32, int32, int64, time.Time, error) {
	return c.ReplicaCalculator.GetResourceReplicas(ctx, current, target, resource, namespace, selector, container)
}

func (c *calculatorOfOneBand) GetRawResourceReplicas(ctx context.Context, current int32, target int64, resource v1.ResourceName, _ Tolerances, namespace string, selector labels.Selector, container string) (int32, int64, time.Time, error) {
	return c.ReplicaCalculator.GetRawResourceReplicas(ctx, current, target, resource, namespace, selector, container)
}

func (c *calculatorOfOneBand) GetMetricReplicas(current int32, target int64, metric string, _ Tolerances, namespace string, selector, metricSelector labels.Selector) (int32, int64, time.Time, error) {
	return c.ReplicaCalculator.GetMetricReplicas(current, target, metric, namespace, selector, metricSelector)
}

func (c *calculatorOfOneBand) GetObjectMetricReplicas(current int32, target int64, metric string, _ Tolerances, namespace string, about *autoscalingv2.CrossVersionObjectReference, selector, metricSelector labels.Selector) (int32, int64, time.Time, error) {
	return c.ReplicaCalculator.GetObjectMetricReplicas(current, target, metric, namespace, about, selector, metricSelector)
}

func (c *calculatorOfOneBand) GetObjectPerPodMetricReplicas(status int32, target int64, metric string, _ Tolerances, namespace string, about *autoscalingv2.CrossVersionObjectReference, metricSelector labels.Selector) (int32, int64, time.Time, error) {
	return c.ReplicaCalculator.GetObjectPerPodMetricReplicas(status, target, metric, namespace, about, metricSelector)
}

func (c *calculatorOfOneBand) GetExternalMetricReplicas(current int32, target int64, metric string, _ Tolerances, namespace string, metricSelector *metav1.LabelSelector, selector labels.Selector) (int32, int64, time.Time, error) {
	return c.ReplicaCalculator.GetExternalMetricReplicas(current, target, metric, namespace, metricSelector, selector)
}

func (c *calculatorOfOneBand) GetExternalPerPodMetricReplicas(status int32, target int64, metric string, _ Tolerances, namespace string, metricSelector *metav1.LabelSelector) (int32, int64, time.Time, error) {
	return c.ReplicaCalculator.GetExternalPerPodMetricReplicas(status, target, metric, namespace, metricSelector)
}
