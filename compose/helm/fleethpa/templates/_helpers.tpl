{{/* The name of everything: the release's, where it says fleethpa already. */}}
{{- define "fleethpa.fullname" -}}
{{- if contains "fleethpa" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-fleethpa" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The hub's name in the log. The uid of the namespace's default account, where helm can ask for it, tells installations
     of one name in several clusters apart, and stays as long as the namespace. */}}
{{- define "fleethpa.hub" -}}
{{- if .Values.hub }}{{ .Values.hub }}
{{- else }}
{{- $account := lookup "v1" "ServiceAccount" .Release.Namespace "default" -}}
{{- if not $account }}
{{- fail "hub is required where helm cannot ask the cluster (helm template, Argo CD, a namespace that is not there yet): name this hub, as no other one on its Kafka is named, with --set hub=NAME" }}
{{- end -}}
{{- .Release.Namespace }}/{{ .Release.Name }}{{ with $account }}@{{ .metadata.uid | trunc 8 }}{{ end }}
{{- end }}
{{- end }}

{{- define "fleethpa.labels" -}}
app.kubernetes.io/name: fleethpa
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Takes a dict with root and component. */}}
{{- define "fleethpa.selector" -}}
app.kubernetes.io/name: fleethpa
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "fleethpa.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* The service account that may ask API servers. */}}
{{- define "fleethpa.account" -}}{{ include "fleethpa.fullname" . }}{{- end }}

{{/* The service account of parts that talk to Kafka alone. */}}
{{- define "fleethpa.hubAccount" -}}{{ include "fleethpa.fullname" . }}-hub{{- end }}
{{- define "fleethpa.streamsAccount" -}}{{ include "fleethpa.fullname" . }}-streams{{- end }}

{{/* Takes a dict with root and component: who the part is to Kafka. */}}
{{- define "fleethpa.principal" -}}
{{- $kafka := .root.Values.kafka -}}
{{- if and (eq $kafka.principals "component") (ne .component "agent") }}{{ $kafka.username }}-{{ .component }}
{{- else }}{{ $kafka.username }}{{ end -}}
{{- end }}

{{/* Whether observer and reconciler run: "true" or empty. */}}
{{- define "fleethpa.hasClusters" -}}
{{- with .Values.clusters }}
{{- if or .inCluster .kubeconfigSecret .found.kubeconfigSecrets .found.argocdClusters .found.clusterProfiles }}true{{ end -}}
{{- end }}
{{- end }}

{{/* The arguments that name the clusters, as a JSON list. */}}
{{- define "fleethpa.clusterArgs" -}}
{{- $args := list -}}
{{- with .Values.clusters }}
{{- if .inCluster }}{{ $args = concat $args (list "--in-cluster" .inCluster) }}{{ end }}
{{- if .kubeconfigSecret }}{{ $args = concat $args (list "--kubeconfig" "/etc/fleethpa/kubeconfig/kubeconfig") }}{{ end }}
{{- if .contexts }}{{ $args = concat $args (list "--contexts" (join "," .contexts)) }}{{ end }}
{{- with .found }}
{{- if .kubeconfigSecrets }}{{ $args = concat $args (list "--kubeconfig-secrets" .kubeconfigSecrets) }}{{ end }}
{{- if .argocdClusters }}{{ $args = concat $args (list "--argocd-clusters" .argocdClusters) }}{{ end }}
{{- if .clusterProfiles }}
{{- $args = concat $args (list "--clusterprofiles" .clusterProfiles "--clusterprofile-provider-file" "/etc/fleethpa/providers/providers.json") }}
{{- end }}
{{- if .execPlugins }}{{ $args = concat $args (list "--found-exec-plugins" (join "," .execPlugins)) }}{{ end }}
{{- if .execEnv }}{{ $args = concat $args (list "--found-exec-env" (join "," .execEnv)) }}{{ end }}
{{- if .insecureTLS }}{{ $args = append $args "--found-insecure-tls" }}{{ end }}
{{- end }}
{{- end }}
{{- toJson $args -}}
{{- end }}

{{/*
The pod of one part. Takes a dict: root; component; principal (a component of `admin topics acls`); args; values (replicas,
resources, extraArgs); asksClusters (its service account may ask API servers); readyPath; web (whether it serves HTTP);
secrets, configs, claim (name → mount path).
*/}}
{{- define "fleethpa.pod" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $kafka := $values.kafka -}}
metadata:
  labels:
    {{- include "fleethpa.selector" . | nindent 4 }}
    {{- if and .web (ne .component "page") }}
    fleethpa/metrics: "true"
    {{- end }}
    {{- with $values.pods.labels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    # Pods begin anew when the connection to Kafka changes.
    fleethpa/kafka: {{ include "fleethpa.kafka" $root | sha256sum | trunc 16 | quote }}
    {{- with $values.pods.annotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  {{- if .account }}
  serviceAccountName: {{ .account }}
  {{- else if .asksClusters }}
  serviceAccountName: {{ include "fleethpa.account" $root }}
  {{- else }}
  serviceAccountName: {{ include "fleethpa.streamsAccount" $root }}
  automountServiceAccountToken: false
  {{- end }}
  # A Service called fleethpa-kafka would set variables that look like settings.
  enableServiceLinks: false
  {{- if .restartPolicy }}
  restartPolicy: {{ .restartPolicy }}
  {{- end }}
  terminationGracePeriodSeconds: 30
  {{- with $values.image.pullSecrets }}
  imagePullSecrets: {{ range . }}
    - name: {{ . }}{{ end }}
  {{- end }}
  {{- with $values.pods.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $values.pods.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.pods.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.pods.affinity }}
  affinity: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- if and $values.pods.spread (gt (int .values.replicas) 1) }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "fleethpa.selector" . | nindent 10 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: {{ .component }}
      image: {{ include "fleethpa.image" $root }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args:
        {{- range concat .args .values.extraArgs }}
        - {{ toString . | quote }}
        {{- end }}
      envFrom:
        - configMapRef: {name: {{ include "fleethpa.fullname" $root }}-kafka}
      env:
        {{- if and (hasPrefix "SASL" $kafka.securityProtocol) (ne $kafka.saslMechanism "AWS_MSK_IAM") }}
        - name: FLEETHPA_KAFKA_USERNAME
          value: {{ include "fleethpa.principal" (dict "root" $root "component" .principal) }}
        - name: FLEETHPA_KAFKA_PASSWORD
          valueFrom:
            secretKeyRef:
              {{- if and (eq $kafka.principals "component") (ne .principal "agent") }}
              name: {{ $kafka.username }}-{{ .principal }}
              {{- else }}
              name: {{ $kafka.passwordSecret }}
              {{- end }}
              key: {{ $kafka.passwordKey }}
        {{- end }}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
      {{- if .web }}
      ports:
        - {name: web, containerPort: 8080}
      livenessProbe:
        httpGet: {path: /healthz, port: web}
        initialDelaySeconds: 30
        periodSeconds: 10
      readinessProbe:
        httpGet: {path: {{ .readyPath | default "/readyz" }}, port: web}
        periodSeconds: 5
      {{- end }}
      resources: {{ toYaml .values.resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if $kafka.caSecret }}
        - {name: kafka-ca, mountPath: /etc/fleethpa/ca, readOnly: true}
        {{- end }}
        {{- if $kafka.clientCertificateSecret }}
        - {name: kafka-client, mountPath: /etc/fleethpa/client, readOnly: true}
        {{- end }}
        {{- range $name, $path := .secrets }}
        - {name: {{ base $path }}, mountPath: {{ $path }}, readOnly: true}
        {{- end }}
        {{- range $name, $path := .configs }}
        - {name: {{ base $path }}, mountPath: {{ $path }}, readOnly: true}
        {{- end }}
        {{- range $name, $path := .claim }}
        - {name: {{ base $path }}, mountPath: {{ $path }}}
        {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
  volumes:
    - {name: tmp, emptyDir: {}}
    {{- if $kafka.caSecret }}
    - {name: kafka-ca, secret: {secretName: {{ $kafka.caSecret }}}}
    {{- end }}
    {{- if $kafka.clientCertificateSecret }}
    - {name: kafka-client, secret: {secretName: {{ $kafka.clientCertificateSecret }}}}
    {{- end }}
    {{- range $name, $path := .secrets }}
    - {name: {{ base $path }}, secret: {secretName: {{ $name }}}}
    {{- end }}
    {{- range $name, $path := .configs }}
    - {name: {{ base $path }}, configMap: {name: {{ $name }}}}
    {{- end }}
    {{- range $name, $path := .claim }}
    - {name: {{ base $path }}, persistentVolumeClaim: {claimName: {{ $name }}}}
    {{- end }}
{{- end }}

{{/* The settings of the connection to Kafka that are no secret. */}}
{{- define "fleethpa.kafka" -}}
{{- $kafka := .Values.kafka -}}
FLEETHPA_KAFKA_BOOTSTRAP_SERVERS: {{ $kafka.bootstrapServers | quote }}
FLEETHPA_KAFKA_SECURITY_PROTOCOL: {{ $kafka.securityProtocol | quote }}
{{- if hasPrefix "SASL" $kafka.securityProtocol }}
FLEETHPA_KAFKA_SASL_MECHANISM: {{ $kafka.saslMechanism | quote }}
{{- end }}
{{- range $variable, $value := dict "TOKEN_ENDPOINT" $kafka.tokenEndpoint "SCOPE" $kafka.scope "EXTENSIONS" $kafka.extensions "CLIENT_RACK" $kafka.clientRack }}
{{- if $value }}
FLEETHPA_KAFKA_{{ $variable }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- if $kafka.caSecret }}
FLEETHPA_KAFKA_CAFILE: /etc/fleethpa/ca/{{ $kafka.caKey }}
{{- end }}
{{- if $kafka.clientCertificateSecret }}
FLEETHPA_KAFKA_CERTFILE: /etc/fleethpa/client/tls.crt
FLEETHPA_KAFKA_KEYFILE: /etc/fleethpa/client/tls.key
{{- end }}
{{- end }}

{{/* A Deployment. Takes what fleethpa.pod takes, and strategy. */}}
{{- define "fleethpa.deployment" -}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "fleethpa.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "fleethpa.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  replicas: {{ if hasKey .values "replicas" }}{{ .values.replicas }}{{ else }}1{{ end }}
  {{- with .strategy }}
  strategy: {type: {{ . }}}
  {{- end }}
  selector:
    matchLabels:
      {{- include "fleethpa.selector" . | nindent 6 }}
  template:
    {{- include "fleethpa.pod" . | nindent 4 }}
{{ end }}
