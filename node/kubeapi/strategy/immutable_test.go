package strategy

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"monopod/node/kubeapi/kinds"
)

// object decodes fields of an object of a kind, such as apps/v1 Deployment.
func object(t *testing.T, kind, fields string) kinds.Object {
	t.Helper()
	version, name, _ := strings.Cut(kind, " ")
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	k := kinds.ByKind(gv.WithKind(name))
	o := k.New()
	if err := yaml.UnmarshalStrict([]byte("{metadata: {name: x, namespace: ns, uid: u}, "+fields+"}"), o); err != nil {
		t.Fatalf("%s %s: %v", kind, fields, err)
	}
	if !k.Namespaced {
		o.SetNamespace("")
	}
	return o
}

const templateText = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}"

func TestWhatMayNotChange(t *testing.T) {
	t.Parallel()
	apps := func(selector, more string) string {
		return "spec: {selector: {matchLabels: {a: " + selector + "}}, " + more + templateText + "}"
	}
	job := func(more, image string) string {
		return "spec: {" + more + strings.NewReplacer("image: i", "image: "+image, "spec: {", "spec: {restartPolicy: Never, ").Replace(templateText) + "}"
	}
	claim := func(mode, size string) string {
		return "spec: {accessModes: [" + mode + "], resources: {requests: {storage: " + size + "}}}, status: {phase: Bound, capacity: {storage: 1Gi}}"
	}
	for _, c := range []struct{ kind, old, now, want string }{
		{"apps/v1 Deployment", apps("b", ""), apps("b", "replicas: 3, "), ""},
		{"apps/v1 Deployment", apps("b", ""), apps("c", ""), "spec.selector"},
		{"apps/v1 ReplicaSet", apps("b", ""), apps("c", ""), "spec.selector"},
		{"rbac.authorization.k8s.io/v1 RoleBinding", "roleRef: {name: a}", "roleRef: {name: b}", "roleRef"},
		{"rbac.authorization.k8s.io/v1 RoleBinding", "roleRef: {name: a}", "roleRef: {name: a}, subjects: [{kind: User, name: u}]", ""},
		{"rbac.authorization.k8s.io/v1 ClusterRoleBinding", "roleRef: {name: a}", "roleRef: {name: b}", "roleRef"},
		{"networking.k8s.io/v1 IngressClass", "spec: {controller: a.example/c}", "spec: {controller: b.example/c}", "spec.controller"},
		{"apps/v1 DaemonSet", apps("b", ""), apps("c", ""), "spec.selector"},
		{"apps/v1 StatefulSet", apps("b", ""), apps("b", "replicas: 2, minReadySeconds: 1, updateStrategy: {type: OnDelete}, "), ""},
		{"apps/v1 StatefulSet", apps("b", ""), apps("b", "serviceName: x, "), "spec.serviceName"},
		{"batch/v1 Job", job("", "i"), job("parallelism: 2, completions: 1, suspend: true, ", "i"), ""},
		{"batch/v1 Job", job("", "i"), job("completions: 2, ", "i"), "spec.completions"},
		{"batch/v1 Job", job("", "i"), job("completionMode: Indexed, ", "i"), "spec.completionMode"},
		{"batch/v1 Job", job("completionMode: Indexed, completions: 1, ", "i"), job("completionMode: Indexed, completions: 2, parallelism: 2, ", "i"), ""},
		{"batch/v1 Job", job("completionMode: Indexed, completions: 1, ", "i"), job("completionMode: Indexed, completions: 2, ", "i"), "spec.completions"},
		{"batch/v1 Job", job("", "i"), job("", "j"), "spec.template"},
		{"batch/v1 Job", job("suspend: true, ", "i"), job("suspend: true, ", "j"), "spec.template.spec"},
		{"batch/v1 Job", job("suspend: true, ", "i"), job("", "i, resources: {limits: {cpu: 1}}"), ""},
		{"v1 PersistentVolumeClaim", claim("ReadWriteOnce", "1Gi"), claim("ReadWriteOnce", "2Gi"), ""},
		{"v1 PersistentVolumeClaim", claim("ReadWriteOnce", "1Gi"), claim("ReadWriteMany", "1Gi"), "spec"},
		{"v1 PersistentVolumeClaim", claim("ReadWriteOnce", "2Gi"), claim("ReadWriteOnce", "1Gi"), "spec.resources.requests.storage"},
		{"v1 PersistentVolume", "spec: {hostPath: {path: /a}}", "spec: {hostPath: {path: /a}, claimRef: {name: c}}", ""},
		{"v1 PersistentVolume", "spec: {hostPath: {path: /a}}", "spec: {hostPath: {path: /b}}", "spec.persistentvolumesource"},
		{"v1 ConfigMap", "data: {a: b}", "data: {a: c}, immutable: true", ""},
		{"v1 ConfigMap", "data: {a: b}, immutable: true", "data: {a: c}, immutable: true", "data"},
		{"v1 ConfigMap", "immutable: true", "binaryData: {a: YQ==}, immutable: true", "binaryData"},
		{"v1 Secret", "immutable: true", "", "immutable"},
		{"v1 Secret", "type: a/b", "type: a/c", "type"},
		{"storage.k8s.io/v1 StorageClass", "provisioner: a", "provisioner: b", "provisioner"},
		{"storage.k8s.io/v1 StorageClass", "provisioner: a", "provisioner: a, parameters: {a: b}", "parameters"},
		{"scheduling.k8s.io/v1 PriorityClass", "value: 1", "value: 1, description: a", ""},
		{"scheduling.k8s.io/v1 PriorityClass", "value: 1", "value: 2", "value"},
		{"scheduling.k8s.io/v1 PriorityClass", "value: 1", "value: 1, preemptionPolicy: Never", "preemptionPolicy"},
		{"node.k8s.io/v1 RuntimeClass", "handler: a", "handler: b", "handler"},
		{"v1 Service", "spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 1}]}", "spec: {clusterIP: 10.0.0.2, ports: [{port: 1}]}", "spec.clusterIPs[0]"},
		{"v1 Service", "spec: {type: LoadBalancer, ports: [{port: 1}]}", "spec: {type: LoadBalancer, loadBalancerClass: a/b, ports: [{port: 1}]}", "spec.loadBalancerClass"},
		{"v1 Service", "spec: {clusterIP: None, clusterIPs: [None]}", "spec: {clusterIP: None, selector: {a: b}}", ""},
	} {
		old, now := object(t, c.kind, c.old), object(t, c.kind, c.now)
		k := kindOf(t, old)
		Default(k, old)
		err := Update(k, "", old, now)
		if c.want == "" && err != nil {
			t.Errorf("%s %s -> %s: %v", c.kind, c.old, c.now, err)
		}
		if c.want == "" {
			continue
		}
		status, ok := errors.AsType[*apierrors.StatusError](err)
		if !ok || !apierrors.IsInvalid(err) {
			t.Errorf("%s %s -> %s: %v, want an error of %s", c.kind, c.old, c.now, err, c.want)
			continue
		}
		if causes := status.ErrStatus.Details.Causes; len(causes) != 1 || causes[0].Field != c.want {
			t.Errorf("%s %s -> %s: %v, want %s", c.kind, c.old, c.now, causes, c.want)
		}
	}
}

func TestServicesKeepWhatTheyWereAssigned(t *testing.T) {
	t.Parallel()
	const port = "ports: [{port: 80}]"
	for name, c := range map[string]struct{ old, now, want string }{
		"an address":     {"clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, " + port, port, "clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, " + port},
		"node ports":     {"type: NodePort, ports: [{port: 80, nodePort: 30000}, {name: b, port: 81, nodePort: 30001}]", "type: NodePort, ports: [{name: c, port: 80}, {name: b, port: 82, nodePort: 30001}]", "type: NodePort, ports: [{name: c, port: 80, nodePort: 30000}, {name: b, port: 82, nodePort: 30001}]"},
		"a port to ask":  {"type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30000, " + port, "type: LoadBalancer, externalTrafficPolicy: Local, " + port, "type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30000, " + port},
		"not node ports": {"type: NodePort, externalTrafficPolicy: Cluster, ports: [{port: 80, nodePort: 30000}]", "externalTrafficPolicy: Cluster, ports: [{port: 80, nodePort: 30000}]", port},
		"no balancer":    {"type: LoadBalancer, allocateLoadBalancerNodePorts: true, loadBalancerClass: a/b, externalTrafficPolicy: Local, healthCheckNodePort: 30000, " + port, "allocateLoadBalancerNodePorts: true, loadBalancerClass: a/b, externalTrafficPolicy: Local, healthCheckNodePort: 30000, " + port, port},
		"no address":     {"clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, internalTrafficPolicy: Cluster, " + port, "type: ExternalName, externalName: a.b, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, internalTrafficPolicy: Cluster, " + port, "type: ExternalName, externalName: a.b, " + port},
	} {
		old, now, want := object(t, "v1 Service", "spec: {"+c.old+"}"), object(t, "v1 Service", "spec: {"+c.now+"}"), object(t, "v1 Service", "spec: {"+c.want+"}")
		k := kindOf(t, old)
		Default(k, old)
		Default(k, want)
		if err := Update(k, "", old, now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !Same(now, want) {
			t.Errorf("%s: have %+v\nwant %+v", name, now.(*corev1.Service).Spec, want.(*corev1.Service).Spec)
		}
	}
}

func TestPodsKeepWhatTheyWereGiven(t *testing.T) {
	t.Parallel()
	const containers = "containers: [{name: c, image: i}]"
	old := object(t, "v1 Pod", "spec: {"+containers+"}")
	k := kindOf(t, old)
	Default(k, old)
	Admit(old)
	if s := old.(*corev1.Pod).Spec; s.ServiceAccountName != "default" || s.DeprecatedServiceAccount != "default" || *s.Priority != 0 || *s.PreemptionPolicy != corev1.PreemptLowerPriority {
		t.Errorf("%+v", s)
	}
	now := object(t, "v1 Pod", "spec: {"+containers+"}")
	if err := Update(k, "", old, now); err != nil || !Same(old, now) {
		t.Errorf("%v, %+v", err, now)
	}
	named := object(t, "v1 Pod", "spec: {serviceAccountName: robot, priorityClassName: high, "+containers+"}")
	Admit(named)
	if s := named.(*corev1.Pod).Spec; s.ServiceAccountName != "robot" || s.Priority != nil {
		t.Errorf("%+v", s)
	}
	headless := object(t, "v1 Service", "spec: {clusterIP: None}")
	Admit(headless)
	if ips := headless.(*corev1.Service).Spec.ClusterIPs; len(ips) != 1 || ips[0] != corev1.ClusterIPNone {
		t.Errorf("%v", ips)
	}
}
