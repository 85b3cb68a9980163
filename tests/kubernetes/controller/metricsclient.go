package main

import (
	"context"
	"encoding/json"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	customapi "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalapi "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsapi "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
)

// metricsLine is a line of a metrics-client file, without its answer.
type metricsLine struct {
	Kind            string                                    `json:"kind"`
	Resource        v1.ResourceName                           `json:"resource"`
	Container       string                                    `json:"container"`
	MetricSelector  *metav1.LabelSelector                     `json:"metricSelector"`
	DescribedObject autoscalingv2.CrossVersionObjectReference `json:"describedObject"`
	Response        json.RawMessage                           `json:"response"`
}

// metricsServer answers for all metrics APIs, and notes what it was asked for.
type metricsServer struct {
	resourceclient.PodMetricsInterface
	response []byte
	request  map[string]any
}

func (s *metricsServer) PodMetricses(string) resourceclient.PodMetricsInterface { return s }

func (s *metricsServer) List(_ context.Context, options metav1.ListOptions) (*metricsapi.PodMetricsList, error) {
	s.request["labelSelector"] = options.LabelSelector
	answer := &metricsapi.PodMetricsList{}
	decode(s.response, answer)
	return answer, nil
}

type customServer struct{ *metricsServer }

func (s customServer) RootScopedMetrics() customclient.MetricsInterface {
	return customScope{s.metricsServer, "root"}
}

func (s customServer) NamespacedMetrics(in string) customclient.MetricsInterface {
	return customScope{s.metricsServer, "namespaced " + in}
}

type customScope struct {
	*metricsServer
	scope string
}

func (s customScope) note(kind schema.GroupKind, metric string, metricSelector labels.Selector) {
	s.request["groupKind"], s.request["scope"] = kind.String(), s.scope
	s.request["metric"], s.request["metricSelector"] = metric, metricSelector.String()
}

func (s customScope) GetForObject(kind schema.GroupKind, name, metric string, metricSelector labels.Selector) (*customapi.MetricValue, error) {
	s.note(kind, metric, metricSelector)
	s.request["name"] = name
	answer := &customapi.MetricValue{}
	decode(s.response, answer)
	return answer, nil
}

func (s customScope) GetForObjects(kind schema.GroupKind, selector labels.Selector, metric string, metricSelector labels.Selector) (*customapi.MetricValueList, error) {
	s.note(kind, metric, metricSelector)
	s.request["selector"] = selector.String()
	answer := &customapi.MetricValueList{}
	decode(s.response, answer)
	return answer, nil
}

type externalServer struct{ *metricsServer }

func (s externalServer) NamespacedMetrics(string) externalclient.MetricsInterface { return s }

func (s externalServer) List(metric string, selector labels.Selector) (*externalapi.ExternalMetricValueList, error) {
	s.request["metric"], s.request["metricSelector"] = metric, selector.String()
	answer := &externalapi.ExternalMetricValueList{}
	decode(s.response, answer)
	return answer, nil
}

func metricsQuestion(line []byte) func() map[string]any {
	given := &metricsLine{}
	decode(line, given)
	return func() map[string]any { return metricsAnswer(given) }
}

func metricsAnswer(given *metricsLine) map[string]any {
	server := &metricsServer{response: given.Response, request: map[string]any{}}
	client := metrics.NewRESTMetricsClient(server, customServer{server}, externalServer{server})
	pods := labels.SelectorFromSet(labels.Set{"app": "x"})
	selector, err := metav1.LabelSelectorAsSelector(given.MetricSelector)
	if err != nil {
		panic(err)
	}
	var out any
	var info metrics.PodMetricsInfo
	switch given.Kind {
	case "resource":
		info, _, err = client.GetResourceMetric(context.Background(), given.Resource, namespace, pods, given.Container)
	case "pods":
		info, _, err = client.GetRawMetric("m", namespace, pods, selector)
	case "object":
		out, _, err = client.GetObjectMetric("m", namespace, &given.DescribedObject, selector)
	default:
		out, _, err = client.GetExternalMetric("m", namespace, selector)
	}
	answer := map[string]any{"request": server.request}
	if err != nil {
		answer["error"] = err.Error()
		return answer
	}
	if out == nil {
		samples := map[string][]int64{}
		for name, each := range info {
			start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
			samples[name] = []int64{each.Value, each.Timestamp.Sub(start).Milliseconds(), each.Window.Milliseconds()}
		}
		out = samples
	}
	answer["out"] = out
	return answer
}
