package change

import (
	"strings"
	"testing"

	"monopod/internal/daemontest"
	"monopod/internal/objects"
	"monopod/internal/program"
	"monopod/manifests"
	"monopod/runner/runtimetest"
)

// slowDeployment is a Deployment whose pods are replaced slowly, so that a client which does not wait sees the old ones.
func slowDeployment(name string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + "}\nspec:\n  replicas: 2\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n" +
		"    spec: {containers: [{name: c, image: i, command: [sh, -c, \"" + runtimetest.ScriptSlowStop + "\"]}]}\n"
}

// TestWaitingAfterAChangeIsNotSatisfiedByTheOldPods: each way to wait returns only when all containers are new.
func TestWaitingAfterAChangeIsNotSatisfiedByTheOldPods(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	d.Says(0, "deployment/x created\n", "", "apply", "--wait", "-f", d.File("x.yaml", slowDeployment("x")))
	d.Says(0, "pod/alone created\n", "", "apply", "--wait", "-f", d.File("alone.yaml", daemontest.PodYAML("alone", runtimetest.ScriptSlowStop)))
	ids := func(pod string) (running []string) {
		for _, c := range d.Fake.State(manifests.Key{Namespace: "default", Name: pod}).Containers {
			if c.Exit == nil {
				running = append(running, c.ID)
			}
		}
		return running
	}
	for _, tt := range []struct {
		pods     []string
		commands [][]string
		last     string
	}{
		{[]string{"x-0", "x-1"}, [][]string{{"restart", "deploy/x"}, {"wait", "deploy/x", "--timeout=1m"}}, "deployment/x condition met\n"},
		{[]string{"x-0", "x-1"}, [][]string{{"restart", "deploy/x"}, {"rollout", "status", "deploy/x"}}, "deployment/x rolled out\n"},
		{[]string{"x-0", "x-1"}, [][]string{{"restart", "deploy/x", "--wait"}}, "deployment/x rolled out\n"},
		{[]string{"alone"}, [][]string{{"restart", "pod/alone"}, {"wait", "alone", "--timeout=1m"}}, "pod/alone condition met\n"},
		{[]string{"alone"}, [][]string{{"restart", "pod/alone"}, {"wait", "alone", "--for=phase=Running", "--timeout=1m"}}, "pod/alone condition met\n"},
		{[]string{"alone"}, [][]string{{"restart", "pod/alone", "--wait"}}, "pod/alone restarted\n"},
	} {
		before := map[string][]string{}
		for _, pod := range tt.pods {
			before[pod] = ids(pod)
		}
		for i, args := range tt.commands {
			if r := d.Cmd(args...); r.Code != 0 || i == len(tt.commands)-1 && !strings.HasSuffix(r.Stdout, tt.last) {
				t.Fatalf("%v: %+v", args, r)
			}
		}
		for _, pod := range tt.pods {
			if now := ids(pod); len(now) != 1 || len(before[pod]) != 1 || now[0] == before[pod][0] {
				t.Errorf("after %v pod %s runs %v, before %v", tt.commands, pod, now, before[pod])
			}
		}
	}
	r := d.Cmd("scale", "deploy/x", "--replicas=0", "--wait")
	if left := append(ids("x-0"), ids("x-1")...); r.Code != 0 || !strings.HasSuffix(r.Stdout, "\ndeployment/x rolled out\n") || len(left) > 0 {
		t.Errorf("%+v, and %v run", r, left)
	}
}

func TestRolloutStatusSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Start()
	stuck := strings.Replace(slowDeployment("stuck"), "image: i,", "image: i, readinessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: 3600},", 1)
	d.Says(0, "deployment/stuck created\n", "", "apply", "-f", d.File("stuck.yaml", stuck))
	d.Shows("2", "get", "deploy", "stuck", "-o", "jsonpath={.status.updatedReplicas}")
	d.SaysAtLast(program.ExitTimeout, "waiting for deployment/stuck: 0 of 2 pods ready\n", "monopod: timed out after 200ms waiting for deployment/stuck: 0 of 2 pods ready\n", "rollout", "status", "deploy/stuck", "--timeout=200ms")
	for _, args := range [][]string{{"rollout"}, {"rollout", "status"}, {"rollout", "status", "job/x"}, {"rollout", "undo"}} {
		if r := d.Cmd(args...); r.Code != program.ExitUsage {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := d.Cmd("rollout", "status", "deploy/none"); r.Code != program.ExitError {
		t.Errorf("%+v", r)
	}
}

func TestWhatARolloutWaitsFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind, object string
		want         string
		begun        bool
	}{
		"no pod is updated": {"Deployment", `{"spec": {"replicas": 2}, "status": {"replicas": 2, "readyReplicas": 2}}`, "0 of 2 pods updated", false},
		"one is":            {"Deployment", `{"spec": {"replicas": 2}, "status": {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 2}}`, "1 of 2 pods updated", true},
		"an old one ends":   {"Deployment", `{"spec": {"replicas": 2}, "status": {"replicas": 3, "updatedReplicas": 2, "readyReplicas": 3}}`, "1 old pods not yet removed", true},
		"one is not ready":  {"Deployment", `{"spec": {}, "status": {"replicas": 1, "updatedReplicas": 1}}`, "0 of 1 pods ready", true},
		"complete":          {"Deployment", `{"spec": {"replicas": 0}, "status": {}}`, "", true},
		"a partition":       {"StatefulSet", `{"spec": {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}, "status": {"replicas": 3, "updatedReplicas": 1, "readyReplicas": 3}}`, "", true},
		"on delete":         {"StatefulSet", `{"spec": {"replicas": 3, "updateStrategy": {"type": "OnDelete"}}, "status": {"replicas": 3, "readyReplicas": 3}}`, "", true},
		"for others":        {"DaemonSet", `{"spec": {}, "status": {}}`, "", true},
		"a daemon set":      {"DaemonSet", `{"spec": {}, "status": {"desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberReady": 1}}`, "0 of 1 pods updated", false},
		"a replica set":     {"ReplicaSet", `{"spec": {"replicas": 1}, "status": {"replicas": 1, "readyReplicas": 1}}`, "", true},
	} {
		r, err := rolloutOf(objects.Item{Kind: tt.kind, Raw: []byte(tt.object)})
		if err != nil || r.missing() != tt.want || r.begun() != tt.begun {
			t.Errorf("%s: %v, %q, begun %v", name, err, r.missing(), r.begun())
		}
	}
	if _, err := rolloutOf(objects.Item{Raw: []byte("[]")}); err == nil {
		t.Error("a list was read")
	}
}
