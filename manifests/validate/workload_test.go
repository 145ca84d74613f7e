package validate

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

const template = "template: {metadata: {labels: {a: b}}, spec: {restartPolicy: %R, containers: [{name: c, image: i}]}}"

// fieldsOf are the fields with an error, and its type, in their order.
func fieldsOf(errs field.ErrorList) string {
	var all []string
	for _, e := range errs {
		all = append(all, strings.TrimPrefix(e.Field, "spec.")+" "+strings.TrimPrefix(string(e.Type), "FieldValue"))
	}
	return strings.Join(all, ", ")
}

// read decodes a spec into a new object.
func read[T any](t *testing.T, spec string) *T {
	t.Helper()
	o := new(T)
	if err := yaml.UnmarshalStrict([]byte("metadata: {name: x, namespace: default}\nspec: {"+spec+"}"), o); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return o
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	apps := strings.Replace(template, "%R", "Always", 1)
	deployment := func(t *testing.T, s string) metav1.Object { return read[appsv1.Deployment](t, s+apps) }
	statefulSet := func(t *testing.T, s string) metav1.Object { return read[appsv1.StatefulSet](t, s+apps) }
	daemonSet := func(t *testing.T, s string) metav1.Object { return read[appsv1.DaemonSet](t, s+apps) }
	job := func(t *testing.T, s string) metav1.Object {
		return read[batchv1.Job](t, s+strings.Replace(template, "%R", "Never", 1))
	}
	cronJob := func(t *testing.T, s string) metav1.Object {
		return read[batchv1.CronJob](t, s+"jobTemplate: {spec: {"+strings.Replace(template, "%R", "OnFailure", 1)+"}}")
	}
	const selector = "selector: {matchLabels: {a: b}}, "
	for _, c := range []struct {
		read func(*testing.T, string) metav1.Object
		spec string
		want string
	}{
		{deployment, selector, ""},
		{deployment, selector + "replicas: 0, strategy: {type: Recreate}, ", ""},
		{deployment, "", "selector Required, template.metadata.labels Invalid"},
		{deployment, "selector: {}, ", "selector Invalid"},
		{deployment, "selector: {matchLabels: {a: c}}, ", "template.metadata.labels Invalid"},
		{deployment, "selector: {matchExpressions: [{key: a, operator: X}]}, ", "selector.matchExpressions[0].operator Invalid, selector Invalid"},
		{deployment, selector + "replicas: -1, ", "replicas Invalid"},
		{deployment, selector + "replicas: 1001, ", "replicas Invalid"},
		{deployment, selector + "minReadySeconds: -1, revisionHistoryLimit: -1, ", "minReadySeconds Invalid, revisionHistoryLimit Invalid"},
		{deployment, selector + "minReadySeconds: 600, progressDeadlineSeconds: 600, ", "progressDeadlineSeconds Invalid"},
		{deployment, selector + "strategy: {type: X}, ", "strategy NotSupported"},
		{deployment, selector + "strategy: {type: Recreate, rollingUpdate: {maxSurge: 1}}, ", "strategy.rollingUpdate Forbidden"},
		{deployment, selector + "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0%}}, ", "strategy.rollingUpdate.maxUnavailable Invalid"},
		{deployment, selector + "strategy: {rollingUpdate: {maxSurge: a, maxUnavailable: 200%}}, ", "strategy.rollingUpdate.maxUnavailable Invalid, strategy.rollingUpdate.maxSurge Invalid"},
		{deployment, selector + "strategy: {rollingUpdate: {maxSurge: 200%, maxUnavailable: 0}}, ", ""},
		{statefulSet, selector + "serviceName: db, ordinals: {start: 3}, updateStrategy: {type: OnDelete}, ", ""},
		{statefulSet, selector + "serviceName: A_B, podManagementPolicy: X, ", "serviceName Invalid, podManagementPolicy Invalid"},
		{statefulSet, selector + "ordinals: {start: -1}, updateStrategy: {rollingUpdate: {partition: -1, maxUnavailable: 0}}, ", "ordinals.start Invalid, updateStrategy.rollingUpdate.partition Invalid, updateStrategy.rollingUpdate.maxUnavailable Invalid"},
		{statefulSet, selector + "updateStrategy: {type: OnDelete, rollingUpdate: {partition: 1}}, ", "updateStrategy.rollingUpdate Invalid"},
		{statefulSet, selector + "updateStrategy: {type: X}, persistentVolumeClaimRetentionPolicy: {whenDeleted: X, whenScaled: Delete}, ", "updateStrategy Invalid, persistentVolumeClaimRetentionPolicy.whenDeleted NotSupported"},
		{daemonSet, selector + "updateStrategy: {type: OnDelete}, ", ""},
		{daemonSet, selector + "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}, ", ""},
		{daemonSet, selector + "updateStrategy: {type: X}, minReadySeconds: -1, ", "minReadySeconds Invalid, updateStrategy NotSupported"},
		{daemonSet, selector + "updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 1}}, ", "updateStrategy.rollingUpdate.maxSurge Invalid"},
		{daemonSet, selector + "updateStrategy: {rollingUpdate: {maxUnavailable: 0}}, ", "updateStrategy.rollingUpdate.maxUnavailable Required"},
		{job, "parallelism: 2, completions: 3, ", ""},
		{job, "parallelism: -1, completions: -1, backoffLimit: -1, activeDeadlineSeconds: -1, ttlSecondsAfterFinished: -1, ", "parallelism Invalid, completions Invalid, backoffLimit Invalid, ttlSecondsAfterFinished Invalid, activeDeadlineSeconds Invalid"},
		{job, "completionMode: X, podReplacementPolicy: Z, ", "completionMode NotSupported, podReplacementPolicy NotSupported"},
		{job, "successPolicy: {rules: []}, ", "successPolicy Forbidden"},
		{cronJob, "schedule: '* * * * *', timeZone: Etc/UTC, ", ""},
		{cronJob, "", "schedule Required"},
		{cronJob, "schedule: '* * * * *', timeZone: Nowhere/At, ", "timeZone Invalid"},
		{cronJob, "schedule: often, timeZone: '', concurrencyPolicy: X, ", "timeZone Invalid, schedule Invalid, concurrencyPolicy NotSupported"},
		{cronJob, "schedule: '* * * * *', startingDeadlineSeconds: -1, successfulJobsHistoryLimit: -1, ", "successfulJobsHistoryLimit Invalid, startingDeadlineSeconds Invalid"},
	} {
		if got := fieldsOf(Workload(c.read(t, c.spec), corev1.RestartPolicyAlways)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.spec, got, c.want)
		}
	}
	limited := read[appsv1.Deployment](t, selector+strings.Replace(apps, "containers", "activeDeadlineSeconds: 5, containers", 1))
	if got := fieldsOf(Workload(limited, corev1.RestartPolicyAlways)); got != "template.spec.activeDeadlineSeconds Forbidden" {
		t.Error(got)
	}
}

func TestServices(t *testing.T) {
	t.Parallel()
	const ports = "ports: [{port: 80}], "
	for _, c := range []struct{ spec, want string }{
		{ports, ""},
		{"clusterIP: None", ""},
		{"type: ExternalName, externalName: example.com.", ""},
		{ports + "type: NodePort, externalTrafficPolicy: Local, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}", ""},
		{ports + "type: LoadBalancer, allocateLoadBalancerNodePorts: true, loadBalancerClass: a/b, loadBalancerSourceRanges: [10.0.0.0/8]", ""},
		{ports + "clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, externalIPs: [192.0.2.1]", ""},
		{"selector: {a: b}", "ports Required"},
		{"type: X, " + ports, "type NotSupported"},
		{"type: NodePort, clusterIP: None, " + ports, "clusterIPs[0] Invalid"},
		{"type: ExternalName", "externalName Required"},
		{"type: ExternalName, externalName: a_b, clusterIP: None", "clusterIPs Forbidden, externalName Invalid"},
		{"ports: [{port: 0, protocol: X}]", "ports[0].port Invalid, ports[0].protocol NotSupported"},
		{"ports: [{port: 1}, {port: 2}]", "ports[0].name Required, ports[1].name Required"},
		{"ports: [{name: a, port: 1}, {name: a, port: 1}]", "ports[1].name Duplicate, ports[1] Duplicate"},
		{"ports: [{name: A_B, port: 1, targetPort: a_b, appProtocol: 'a b'}]", "ports[0].name Invalid, ports[0].targetPort Invalid, ports[0].appProtocol Invalid"},
		{"ports: [{port: 1, nodePort: 30000}]", "ports[0].nodePort Forbidden"},
		{"type: NodePort, ports: [{name: a, port: 1, nodePort: 30000}, {name: b, port: 2, nodePort: 30000}]", "ports[1].nodePort Duplicate"},
		{"selector: {'a b': c}, " + ports, "selector Invalid"},
		{"sessionAffinity: X, " + ports, "sessionAffinity NotSupported"},
		{"sessionAffinityConfig: {clientIP: {}}, " + ports, "sessionAffinityConfig Forbidden"},
		{"sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}, " + ports, "sessionAffinityConfig.clientIP.timeoutSeconds Invalid"},
		{"clusterIP: x, " + ports, "clusterIPs[0] Invalid"},
		{"clusterIPs: [10.0.0.1], " + ports, "clusterIPs Invalid"},
		{"clusterIP: 10.0.0.2, clusterIPs: [10.0.0.1, None], ipFamilies: [X, X], ipFamilyPolicy: X, " + ports, "clusterIPs Invalid, ipFamilies[0] NotSupported, ipFamilies[1] NotSupported, ipFamilies[1] Duplicate, ipFamilyPolicy NotSupported, clusterIPs Invalid"},
		{"externalIPs: [x], " + ports, "externalIPs[0] Invalid"},
		{"allocateLoadBalancerNodePorts: true, loadBalancerClass: a, loadBalancerSourceRanges: [x], " + ports, "LoadBalancerSourceRanges Forbidden, LoadBalancerSourceRanges[0] Invalid, allocateLoadBalancerNodePorts Forbidden, loadBalancerClass Forbidden"},
		{"externalTrafficPolicy: Local, healthCheckNodePort: 1, internalTrafficPolicy: X, trafficDistribution: X, " + ports, "externalTrafficPolicy Invalid, healthCheckNodePort Invalid, internalTrafficPolicy NotSupported, trafficDistribution NotSupported"},
	} {
		if got := fieldsOf(Object(read[corev1.Service](t, c.spec), false)); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.spec, got, c.want)
		}
	}
}
