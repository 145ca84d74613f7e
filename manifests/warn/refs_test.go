package warn_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEachReferenceIsWarnedOfOnceAndOnlyWhileItIsMissing covers each place of a pod that names another document.
func TestEachReferenceIsWarnedOfOnceAndOnlyWhileItIsMissing(t *testing.T) {
	t.Parallel()
	const (
		configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {k: v}\n"
		secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: {k: v}\n"
		class     = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: x}\nhandler: x\n"
		claim     = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: x}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	)
	for _, tt := range []struct {
		name, container, spec string
		// document is what the pod waits for, field its place in the pod.
		document, field string
	}{
		{
			name:      "all variables of a ConfigMap",
			container: ", envFrom: [{configMapRef: {name: x}}]",
			document:  configMap, field: "spec.containers[0].envFrom[0].configMapRef.name",
		},
		{
			name:      "all variables of a Secret",
			container: ", envFrom: [{secretRef: {name: x}}]",
			document:  secret, field: "spec.containers[0].envFrom[0].secretRef.name",
		},
		{
			name:      "one variable of a ConfigMap",
			container: ", env: [{name: A, value: a}, {name: B, valueFrom: {configMapKeyRef: {name: x, key: k}}}]",
			document:  configMap, field: "spec.containers[0].env[1].valueFrom.configMapKeyRef.name",
		},
		{
			name:     "a PriorityClass",
			spec:     ", priorityClassName: x",
			document: "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: x}\nvalue: 7\n", field: "spec.priorityClassName",
		},
		{
			name:      "one variable of a Secret",
			container: ", env: [{name: B, valueFrom: {secretKeyRef: {name: x, key: k}}}]",
			document:  secret, field: "spec.containers[0].env[0].valueFrom.secretKeyRef.name",
		},
		{
			name:     "an init container",
			spec:     ", initContainers: [{name: i, image: b, envFrom: [{configMapRef: {name: x}}]}]",
			document: configMap, field: "spec.initContainers[0].envFrom[0].configMapRef.name",
		},
		{
			name:     "a volume of a ConfigMap",
			spec:     ", volumes: [{name: v, configMap: {name: x}}]",
			document: configMap, field: "spec.volumes[0].configMap.name",
		},
		{
			name:     "a volume of a Secret",
			spec:     ", volumes: [{name: v, secret: {secretName: x}}]",
			document: secret, field: "spec.volumes[0].secret.secretName",
		},
		{
			name:     "a projected ConfigMap",
			spec:     ", volumes: [{name: v, projected: {sources: [{configMap: {name: x}}]}}]",
			document: configMap, field: "spec.volumes[0].projected.sources[0].configMap.name",
		},
		{
			name:     "a projected Secret",
			spec:     ", volumes: [{name: v, projected: {sources: [{secret: {name: x}}]}}]",
			document: secret, field: "spec.volumes[0].projected.sources[0].secret.name",
		},
		{
			name:     "a claim",
			spec:     ", volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]",
			document: claim, field: "spec.volumes[0].persistentVolumeClaim.claimName",
		},
		{
			name:     "a runtime class",
			spec:     ", runtimeClassName: x",
			document: class, field: "spec.runtimeClassName",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := aPod("a", tt.container, tt.spec)
			got := of(t, false, pod)
			if want := "f:1: pod default/a: " + tt.field + ": there is no "; !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
				t.Errorf("without the document: want %s, got\n%s", want, got)
			}
			if got := of(t, false, pod, tt.document); got != "" {
				t.Errorf("with the document: %s", got)
			}
			if got := of(t, true, pod); got != "" {
				t.Errorf("where some documents could not be read: %s", got)
			}
		})
	}
}

// TestTheCertificatesOfTheAPIAreInEachNamespace: pods with access to it mount them, and no document has them.
func TestTheCertificatesOfTheAPIAreInEachNamespace(t *testing.T) {
	t.Parallel()
	access := strings.Replace(aPod("a", "", ""), "{name: a}", "{name: a, annotations: {monopod.dev/api-access: view}}", 1)
	mounted := aPod("a", "", ", volumes: [{name: v, configMap: {name: kube-root-ca.crt}}, {name: w, projected: {sources: [{configMap: {name: kube-root-ca.crt}}]}}]")
	for _, pod := range []string{access, mounted} {
		if got := of(t, false, pod); got != "" {
			t.Errorf("%s:\n%s", pod, got)
		}
	}
	if got := of(t, false, aPod("a", ", envFrom: [{configMapRef: {name: kube-root-ca.crt}}]", "")); !strings.Contains(got, "there is no ConfigMap default/kube-root-ca.crt") {
		t.Errorf("variables have it: %q", got) // only files have them
	}
}

func TestHostPortsOverlapByAddressAndProtocol(t *testing.T) {
	t.Parallel()
	deployment := func(port string) string { return fmt.Sprintf(head, "Deployment", 1, ", ports: ["+port+"]", "", "") }
	for _, tt := range []struct {
		name, port string
		want       bool
	}{
		{"the same port", "{containerPort: 1, hostPort: 80}", true},
		{"another port", "{containerPort: 80, hostPort: 81}", false},
		{"another protocol", "{containerPort: 1, hostPort: 80, protocol: UDP}", false},
		{"one address of all", "{containerPort: 1, hostPort: 80, hostIP: 127.0.0.1}", true},
		{"all addresses, written out", "{containerPort: 1, hostPort: 80, hostIP: 0.0.0.0}", true},
		{"no host port", "{containerPort: 80}", false},
	} {
		got := of(t, false, aPod("a", ", ports: [{containerPort: 1, hostPort: 80}]", ""), deployment(tt.port))
		if strings.Contains(got, "is also used by Pod default/a") != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	// An init container has ended before the port is needed again.
	init := aPod("a", "", ", initContainers: [{name: i, image: b, ports: [{containerPort: 1, hostPort: 80}]}]")
	if got := of(t, false, init, deployment("{containerPort: 1, hostPort: 80}")); got != "" {
		t.Errorf("an init container: %s", got)
	}
}

func TestPodsOfACronJobHaveNoNamesYet(t *testing.T) {
	t.Parallel()
	cron := "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web}\nspec: {schedule: '0 * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: b, envFrom: [{configMapRef: {name: c}}]}]}}}}}\n"
	got := of(t, false, cron, aPod("web-0", "", ""))
	lines := strings.Split(strings.TrimSpace(got), "\n")
	want := "f:1: cronjob default/web: spec.jobTemplate.spec.template.spec.containers[0].envFrom[0].configMapRef.name: there is no ConfigMap default/c in these files: the pod waits for it; add the document, or write optional: true"
	if !slices.Equal(lines, []string{want}) {
		t.Errorf("got %q", lines)
	}
}

func TestManyWarningsAreSummedUp(t *testing.T) {
	t.Parallel()
	got := of(t, false, aPod("a", ", envFrom: ["+strings.Repeat("{configMapRef: {name: c}},", 205)+"]", ""))
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if last := lines[len(lines)-1]; len(lines) != 200 || last != "f:1: pod default/a: there are 6 more warnings" {
		t.Errorf("%d lines, the last is %s", len(lines), last)
	}
}
