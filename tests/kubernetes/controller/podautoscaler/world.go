// What stands around upstream's controller while it answers recorded or generated cases: this file is compiled into a
// copy of upstream's package, so that it can fill the controller's unexported fields. Everything else there is unchanged.
package podautoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/restmapper"
	scaleclient "k8s.io/client-go/scale"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
)

// gitVersion is the version that the rest of this package was copied from; the build sets it.
var gitVersion string

func init() {
	// The feature gates are those of that version, each with its default.
	copied := version.MustParseGeneric(gitVersion)
	gates := utilfeature.DefaultMutableFeatureGate
	if err := gates.SetEmulationVersion(version.MajorMinor(copied.Major(), copied.Minor())); err != nil {
		panic(err)
	}
	// Retries of a conflict and errors that are only logged take no time: the clock stands still during a tick.
	retry.DefaultRetry = wait.Backoff{Steps: retry.DefaultRetry.Steps}
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(klog.New(nil))
}

type object = map[string]any

// instant is the moment so many milliseconds after the start of the scenario.
func instant(ms int64) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

func milliseconds(t time.Time) int64 {
	return t.Sub(instant(0)).Milliseconds()
}

// moveTo lets the clock of the synctest bubble reach a moment.
func moveTo(ms int64) {
	left := instant(ms).Sub(time.Now())
	if left < 0 {
		panic(fmt.Sprintf("the clock cannot go back to %d ms", ms))
	}
	time.Sleep(left)
}

// targetKinds are the scale targets that the API of the cases has, as its discovery shows them.
var targetKinds = []*restmapper.APIGroupResources{
	served("", "ReplicationController"), served("apps", "Deployment", "ReplicaSet", "StatefulSet"),
}

func served(group string, kinds ...string) *restmapper.APIGroupResources {
	version := metav1.GroupVersionForDiscovery{GroupVersion: schema.GroupVersion{Group: group, Version: "v1"}.String(), Version: "v1"}
	found := &restmapper.APIGroupResources{
		Group: metav1.APIGroup{
			Name: group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		},
		VersionedResources: map[string][]metav1.APIResource{},
	}
	for _, kind := range kinds {
		resource := metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: true}
		found.VersionedResources["v1"] = append(found.VersionedResources["v1"], resource)
	}
	return found
}

type container struct {
	Name          string          `json:"name"`
	Requests      v1.ResourceList `json:"requests"`
	RestartAlways bool            `json:"restartAlways"`
}

type template struct {
	Containers     []container     `json:"containers"`
	InitContainers []container     `json:"initContainers"`
	PodRequests    v1.ResourceList `json:"podRequests"`
	Overhead       v1.ResourceList `json:"overhead"`
}

type podLine struct {
	Name     string            `json:"name"`
	Template int               `json:"template"`
	Phase    *v1.PodPhase      `json:"phase"`
	Start    *int64            `json:"start"`
	Ready    *string           `json:"ready"`
	ReadyAt  *int64            `json:"readyAt"`
	Deleting bool              `json:"deleting"`
	Labels   map[string]string `json:"labels"`
}

func containers(shapes []container) []v1.Container {
	made := make([]v1.Container, 0, len(shapes))
	for _, shape := range shapes {
		each := v1.Container{Name: shape.Name, Resources: v1.ResourceRequirements{Requests: shape.Requests}}
		if shape.RestartAlways {
			always := v1.ContainerRestartPolicyAlways
			each.RestartPolicy = &always
		}
		made = append(made, each)
	}
	return made
}

func pod(line podLine, templates []template, defaultLabels map[string]string) *v1.Pod {
	shape := templates[line.Template]
	made := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: line.Name, Namespace: "ns", Labels: line.Labels},
		Spec: v1.PodSpec{
			Containers:     containers(shape.Containers),
			InitContainers: containers(shape.InitContainers),
			Overhead:       shape.Overhead,
		},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
	if line.Labels == nil {
		made.Labels = defaultLabels
	}
	if shape.PodRequests != nil {
		made.Spec.Resources = &v1.ResourceRequirements{Requests: shape.PodRequests}
	}
	if line.Phase != nil {
		made.Status.Phase = *line.Phase
	}
	if line.Start != nil {
		made.Status.StartTime = &metav1.Time{Time: instant(*line.Start)}
	}
	if line.Ready != nil {
		condition := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionStatus(*line.Ready)}
		if line.ReadyAt != nil {
			condition.LastTransitionTime = metav1.Time{Time: instant(*line.ReadyAt)}
		}
		made.Status.Conditions = []v1.PodCondition{condition}
	}
	if line.Deleting {
		made.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return made
}

// podLister lists the pods of the only namespace, in the order of the case.
type podLister struct {
	corelisters.PodLister
	pods []*v1.Pod
}

func (l *podLister) Pods(string) corelisters.PodNamespaceLister { return podsOfNamespace{pods: l.pods} }

type podsOfNamespace struct {
	corelisters.PodNamespaceLister
	pods []*v1.Pod
}

func (l podsOfNamespace) List(selector labels.Selector) (selected []*v1.Pod, err error) {
	for _, each := range l.pods {
		if selector.Matches(labels.Set(each.Labels)) {
			selected = append(selected, each)
		}
	}
	return selected, nil
}

type metricLine struct {
	Error  *string                    `json:"error"`
	Ts     int64                      `json:"ts"`
	Window int64                      `json:"window"`
	Pods   map[string]json.RawMessage `json:"pods"`
	Value  int64                      `json:"value"`
	Values []int64                    `json:"values"`
}

// metricsAPI answers for the metric whose turn it is.
type metricsAPI struct {
	lines []metricLine
	turn  int
}

func (m *metricsAPI) next() (metricLine, error) {
	if m.turn >= len(m.lines) {
		panic("a metric is asked for that the case does not have")
	}
	line := m.lines[m.turn]
	if line.Error != nil {
		return line, errors.New(*line.Error)
	}
	return line, nil
}

func (m *metricsAPI) perPod() (metricsclient.PodMetricsInfo, time.Time, error) {
	line, err := m.next()
	if err != nil {
		return nil, time.Time{}, err
	}
	info := make(metricsclient.PodMetricsInfo, len(line.Pods))
	for name, raw := range line.Pods {
		sample := [3]int64{0, line.Ts, line.Window}
		if raw[0] == '[' {
			err = json.Unmarshal(raw, &sample)
		} else {
			err = json.Unmarshal(raw, &sample[0])
		}
		if err != nil {
			panic(err)
		}
		window := time.Duration(sample[2]) * time.Second
		info[name] = metricsclient.PodMetric{Value: sample[0], Timestamp: instant(sample[1]), Window: window}
	}
	return info, instant(line.Ts), nil
}

func (m *metricsAPI) GetResourceMetric(context.Context, v1.ResourceName, string, labels.Selector, string) (metricsclient.PodMetricsInfo, time.Time, error) {
	return m.perPod()
}

func (m *metricsAPI) GetRawMetric(string, string, labels.Selector, labels.Selector) (metricsclient.PodMetricsInfo, time.Time, error) {
	return m.perPod()
}

func (m *metricsAPI) GetObjectMetric(string, string, *autoscalingv2.CrossVersionObjectReference, labels.Selector) (int64, time.Time, error) {
	line, err := m.next()
	return line.Value, instant(line.Ts), err
}

func (m *metricsAPI) GetExternalMetric(string, string, labels.Selector) ([]int64, time.Time, error) {
	line, err := m.next()
	return line.Values, instant(line.Ts), err
}

// watcher notes what the controller counts, and tells the metrics API when the next metric's turn begins.
type watcher struct {
	monitor.Monitor
	api    *metricsAPI
	action string
	label  string
	gauge  *int32
	found  [][]string
}

func (w *watcher) ObserveReconciliationResult(action monitor.ActionLabel, label monitor.ErrorLabel, _ time.Duration) {
	w.action, w.label = string(action), string(label)
}

func (w *watcher) ObserveMetricComputationResult(action monitor.ActionLabel, label monitor.ErrorLabel, _ time.Duration, kind autoscalingv2.MetricSourceType) {
	w.found = append(w.found, []string{string(kind), string(action), string(label)})
	w.api.turn++
}

func (w *watcher) ObserveDesiredReplicas(_, _ string, desired int32) { w.gauge = &desired }

// recorder keeps events in the order in which they are emitted.
type recorder struct {
	record.EventRecorder
	events [][]string
}

func (r *recorder) Event(_ runtime.Object, kind, reason, message string) {
	r.events = append(r.events, []string{kind, reason, message})
}

func (r *recorder) Eventf(about runtime.Object, kind, reason, format string, args ...any) {
	r.Event(about, kind, reason, fmt.Sprintf(format, args...))
}

type scaleLine struct {
	Spec     int32  `json:"spec"`
	Status   int32  `json:"status"`
	Selector string `json:"selector"`
}

type updateLine struct {
	Conflict *string `json:"conflict"`
	Error    *string `json:"error"`
}

// scales answers for the /scale of the target.
type scales struct {
	scaleclient.ScaleInterface
	scale    *scaleLine
	err      *string
	updates  []updateLine
	attempts []int32
	scaled   *int32
}

func (s *scales) Scales(string) scaleclient.ScaleInterface { return s }

func (s *scales) Get(context.Context, schema.GroupResource, string, metav1.GetOptions) (*autoscalingv1.Scale, error) {
	if s.err != nil {
		return nil, errors.New(*s.err)
	}
	if s.scale == nil {
		panic("the scale is asked for, and the tick does not have it")
	}
	return &autoscalingv1.Scale{
		Spec:   autoscalingv1.ScaleSpec{Replicas: s.scale.Spec},
		Status: autoscalingv1.ScaleStatus{Replicas: s.scale.Status, Selector: s.scale.Selector},
	}, nil
}

func (s *scales) Update(_ context.Context, _ schema.GroupResource, scale *autoscalingv1.Scale, _ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	attempt := len(s.attempts)
	s.attempts = append(s.attempts, scale.Spec.Replicas)
	if attempt < len(s.updates) {
		reply := s.updates[attempt]
		if reply.Conflict != nil {
			return nil, &k8serrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusConflict,
				Reason: metav1.StatusReasonConflict, Message: *reply.Conflict,
			}}
		}
		if reply.Error != nil {
			return nil, errors.New(*reply.Error)
		}
	}
	s.scaled = &scale.Spec.Replicas
	return scale, nil
}

// store has the HPA object: what the lister gives, and what takes writes of its status.
type store struct {
	hpa     *autoscalingv2.HorizontalPodAutoscaler
	exists  bool
	err     *string
	written *autoscalingv2.HorizontalPodAutoscalerStatus
	refused *autoscalingv2.HorizontalPodAutoscalerStatus
}

type statusWriter struct {
	autoscalingclient.HorizontalPodAutoscalerInterface
	*store
}

func (s statusWriter) HorizontalPodAutoscalers(string) autoscalingclient.HorizontalPodAutoscalerInterface {
	return s
}

func (s statusWriter) UpdateStatus(_ context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, _ metav1.UpdateOptions) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	if s.err != nil {
		s.refused = &hpa.Status
		return nil, errors.New(*s.err)
	}
	s.written = &hpa.Status
	s.hpa.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
	through(hpa.Status, &s.hpa.Status)
	return s.hpa, nil
}

type hpaLister struct {
	autoscalinglisters.HorizontalPodAutoscalerLister
	*store
}

func (l hpaLister) HorizontalPodAutoscalers(string) autoscalinglisters.HorizontalPodAutoscalerNamespaceLister {
	return hpaGetter{store: l.store}
}

type hpaGetter struct {
	autoscalinglisters.HorizontalPodAutoscalerNamespaceLister
	*store
}

func (l hpaGetter) Get(name string) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	if !l.exists {
		return nil, k8serrors.NewNotFound(horizontalGroupResource, name)
	}
	return l.hpa, nil
}

// through carries a value to another the way that the API does: as JSON.
func through(from, to any) {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		panic(err)
	}
}

// before has names in their order, where upstream's is that of a map.
func before(a, b selectors.Key) int { return strings.Compare(a.String(), b.String()) }

type controllerLine struct {
	Tolerance                 float64 `json:"tolerance"`
	DownscaleStabilizationMs  int64   `json:"downscaleStabilizationMs"`
	CPUInitializationPeriodMs int64   `json:"cpuInitializationPeriodMs"`
	InitialReadinessDelayMs   int64   `json:"initialReadinessDelayMs"`
}

type otherHPA struct {
	Name     string `json:"name"`
	Selector string `json:"selector"`
}

type tickInput struct {
	T                 int64                                      `json:"t"`
	Restart           bool                                       `json:"restart"`
	HPADeleted        bool                                       `json:"hpaDeleted"`
	HPARecreated      bool                                       `json:"hpaRecreated"`
	HPAEdit           *autoscalingv2.HorizontalPodAutoscalerSpec `json:"hpaEdit"`
	OtherHPAs         []otherHPA                                 `json:"otherHpas"`
	Scale             *scaleLine                                 `json:"scale"`
	ScaleError        *string                                    `json:"scaleError"`
	ScaleUpdate       []updateLine                               `json:"scaleUpdate"`
	StatusUpdateError *string                                    `json:"statusUpdateError"`
	Pods              *[]podLine                                 `json:"pods"`
	Metrics           []metricLine                               `json:"metrics"`
}

// Scenario is a line of a controller-* file, without its answers.
type Scenario struct {
	Controller controllerLine                        `json:"controller"`
	HPA        autoscalingv2.HorizontalPodAutoscaler `json:"hpa"`
	Labels     map[string]string                     `json:"labels"`
	Templates  []template                            `json:"templates"`
	Ticks      []struct {
		In tickInput `json:"in"`
	} `json:"ticks"`
}

type world struct {
	scenario   *Scenario
	store      *store
	pods       *podLister
	controller *HorizontalController
	others     map[string]bool
}

func newWorld(scenario *Scenario) *world {
	hpa := scenario.HPA.DeepCopy()
	w := &world{scenario: scenario, store: &store{hpa: hpa, exists: true}, pods: &podLister{}}
	w.start()
	return w
}

func (w *world) key() selectors.Key {
	return selectors.Key{Namespace: w.store.hpa.Namespace, Name: w.store.hpa.Name}
}

// enableOldGates switches on what is a field of the controller in some versions, as by default there.
var enableOldGates = func(*HorizontalController) {}

// start starts the controller's process: it knows nothing but that the HPA is there.
func (w *world) start() {
	given := w.scenario.Controller
	w.controller = &HorizontalController{
		hpaNamespacer:                statusWriter{store: w.store},
		mapper:                       restmapper.NewDiscoveryRESTMapper(targetKinds),
		downscaleStabilisationWindow: time.Duration(given.DownscaleStabilizationMs) * time.Millisecond,
		hpaLister:                    hpaLister{store: w.store},
		podLister:                    w.pods,
		recommendations:              map[string][]timestampedRecommendation{},
		scaleUpEvents:                map[string][]timestampedScaleEvent{},
		scaleDownEvents:              map[string][]timestampedScaleEvent{},
	}
	w.controller.trackSelectors()
	enableOldGates(w.controller)
	w.others = map[string]bool{}
	if w.store.exists {
		w.register(w.key())
	}
}

func (w *world) register(key selectors.Key) {
	w.controller.registerHPA(key)
}

// happen brings about what happened before a tick, in the order of the file's format.
func (w *world) happen(given *tickInput) {
	hpa := w.store.hpa
	if given.Restart {
		w.start()
	}
	if given.HPADeleted {
		w.store.exists = false
		w.controller.unregisterHPA(w.key())
	}
	if given.HPARecreated {
		w.controller.unregisterHPA(w.key())
		w.store.exists = true
		hpa.Generation = 1
		hpa.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
		w.register(w.key())
	}
	if given.HPAEdit != nil {
		hpa.Spec = *given.HPAEdit
		if w.store.exists {
			hpa.Generation++
		}
	}
	if given.Pods != nil {
		w.pods.pods = nil
		for _, line := range *given.Pods {
			w.pods.pods = append(w.pods.pods, pod(line, w.scenario.Templates, w.scenario.Labels))
		}
	}
	w.meet(given.OtherHPAs)
}

// meet lets the controller know the other HPAs of the namespace, and no longer those that are gone.
func (w *world) meet(others []otherHPA) {
	namespace, there := w.store.hpa.Namespace, map[string]bool{}
	for _, other := range others {
		there[other.Name] = true
	}
	for name := range w.others {
		if !there[name] {
			w.controller.unregisterHPA(selectors.Key{Namespace: namespace, Name: name})
		}
	}
	w.others = there
	w.controller.eventRecorder = &recorder{}
	for _, other := range others {
		w.register(selectors.Key{Namespace: namespace, Name: other.Name})
		hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: other.Name}}
		// What it says of a selector that is wrong or ambiguous is that HPA's own affair.
		_, _ = w.controller.validateAndParseSelector(hpa, other.Selector)
	}
}

func (w *world) tick(given *tickInput) object {
	moveTo(given.T)
	w.happen(given)
	api := &metricsAPI{lines: given.Metrics}
	seen, events := &watcher{api: api}, &recorder{}
	target := &scales{scale: given.Scale, err: given.ScaleError, updates: given.ScaleUpdate}
	c := w.controller
	c.monitor, c.eventRecorder, c.scaleNamespacer = seen, events, target
	settings := w.scenario.Controller
	c.useCalculator(newCalculator(api, w.pods, settings.Tolerance,
		time.Duration(settings.CPUInitializationPeriodMs)*time.Millisecond,
		time.Duration(settings.InitialReadinessDelayMs)*time.Millisecond), settings.Tolerance)
	w.store.err, w.store.written, w.store.refused = given.StatusUpdateError, nil, nil

	deleted, err := c.reconcileKey(context.Background(), w.key().String())

	out := object{"action": seen.action, "errorLabel": seen.label}
	if deleted {
		out["deleted"] = true
	}
	if target.scaled != nil {
		out["scaledTo"] = *target.scaled
	}
	if len(target.attempts) > 0 {
		out["scaleAttempts"] = target.attempts
	}
	if w.store.written != nil {
		out["status"] = w.store.written
	}
	if w.store.refused != nil {
		out["statusAttempt"] = w.store.refused
	}
	if len(events.events) > 0 {
		out["events"] = events.events
	}
	if err != nil {
		out["error"] = err.Error()
	}
	if len(seen.found) > 0 {
		out["metricResults"] = seen.found
	}
	if seen.gauge != nil {
		out["desiredGauge"] = *seen.gauge
	}
	return out
}

func (w *world) memory() object {
	key := w.key().String()
	recommendations := [][]int64{}
	for _, each := range w.controller.recommendations[key] {
		recommendations = append(recommendations, []int64{int64(each.recommendation), milliseconds(each.timestamp)})
	}
	return object{
		"recommendations": recommendations,
		"scaleUpEvents":   scaleEvents(w.controller.scaleUpEvents[key]),
		"scaleDownEvents": scaleEvents(w.controller.scaleDownEvents[key]),
	}
}

func scaleEvents(events []timestampedScaleEvent) [][]int64 {
	lines := [][]int64{}
	for _, each := range events {
		outdated := int64(0)
		if each.outdated {
			outdated = 1
		}
		lines = append(lines, []int64{int64(each.replicaChange), milliseconds(each.timestamp), outdated})
	}
	return lines
}

// Play gives what upstream does in each tick, and what it remembers at the end.
func Play(scenario *Scenario) (outs []any, memory any) {
	w := newWorld(scenario)
	for index := range scenario.Ticks {
		outs = append(outs, w.tick(&scenario.Ticks[index].In))
	}
	return outs, w.memory()
}

// Calculation is a line of a calculator file, without its answer.
type Calculation struct {
	Kind                      string            `json:"kind"`
	Now                       int64             `json:"now"`
	CPUInitializationPeriodMs int64             `json:"cpuInitializationPeriodMs"`
	InitialReadinessDelayMs   int64             `json:"initialReadinessDelayMs"`
	ToleranceUp               float64           `json:"toleranceUp"`
	ToleranceDown             float64           `json:"toleranceDown"`
	CurrentReplicas           int32             `json:"currentReplicas"`
	Target                    int64             `json:"target"`
	Resource                  v1.ResourceName   `json:"resource"`
	Container                 string            `json:"container"`
	Labels                    map[string]string `json:"labels"`
	Selector                  string            `json:"selector"`
	Templates                 []template        `json:"templates"`
	Pods                      []podLine         `json:"pods"`
	Metric                    metricLine        `json:"metric"`
}

// Calculate gives what upstream's replica calculator makes of one metric.
func Calculate(given *Calculation) any {
	moveTo(given.Now)
	selector, err := labels.Parse(given.Selector)
	if err != nil {
		panic(err)
	}
	lister := &podLister{}
	for _, line := range given.Pods {
		lister.pods = append(lister.pods, pod(line, given.Templates, given.Labels))
	}
	calculator := newCalculator(&metricsAPI{lines: []metricLine{given.Metric}}, lister, given.ToleranceUp,
		time.Duration(given.CPUInitializationPeriodMs)*time.Millisecond,
		time.Duration(given.InitialReadinessDelayMs)*time.Millisecond)
	band := Tolerances{scaleDown: given.ToleranceDown, scaleUp: given.ToleranceUp}
	service := &autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "svc", APIVersion: "v1"}
	current, target, every := given.CurrentReplicas, given.Target, labels.Everything()
	var replicas, utilization int32
	var usage int64
	switch given.Kind {
	case "resource":
		replicas, utilization, usage, _, err = calculator.GetResourceReplicas(
			context.Background(), current, int32(target), given.Resource, band, "ns", selector, given.Container)
	case "rawResource":
		replicas, usage, _, err = calculator.GetRawResourceReplicas(
			context.Background(), current, target, given.Resource, band, "ns", selector, given.Container)
	case "pods":
		replicas, usage, _, err = calculator.GetMetricReplicas(current, target, "m", band, "ns", selector, every)
	case "object":
		replicas, usage, _, err = calculator.GetObjectMetricReplicas(current, target, "m", band, "ns", service, selector, every)
	case "objectPerPod":
		replicas, usage, _, err = calculator.GetObjectPerPodMetricReplicas(current, target, "m", band, "ns", service, every)
	case "external":
		replicas, usage, _, err = calculator.GetExternalMetricReplicas(current, target, "m", band, "ns", &metav1.LabelSelector{}, selector)
	case "externalPerPod":
		replicas, usage, _, err = calculator.GetExternalPerPodMetricReplicas(current, target, "m", band, "ns", &metav1.LabelSelector{})
	default:
		panic("unknown kind of calculation " + given.Kind)
	}
	if err != nil {
		return object{"replicas": replicas, "error": err.Error()}
	}
	out := object{"replicas": replicas, "usage": usage}
	if given.Kind == "resource" {
		out["utilization"] = utilization
	}
	return out
}
