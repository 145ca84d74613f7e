//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// deployment runs a script in each of its pods.
func deployment(replicas int, script string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: c, image: %s, command: [sh, -c, %q]}
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`, replicas, image, "trap 'exit 0' TERM; "+script+"; while :; do sleep 3600 & wait $!; done")
}

// podNames waits until the existing pods have these names.
func (in *instance) podNames(want ...string) {
	in.t.Helper()
	in.eventually(fmt.Sprintf("the pods are %v", want), func() error {
		all, err := in.pods()
		if err != nil {
			return err
		}
		for _, name := range want {
			if _, ok := all[name]; !ok {
				return fmt.Errorf("no pod %s among %d", name, len(all))
			}
		}
		if len(all) != len(want) {
			return fmt.Errorf("%d pods", len(all))
		}
		return nil
	})
}

func TestADeploymentRunsBehindItsService(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("web", deployment(2, web))
	before := []corev1.Pod{in.ready("web-0"), in.ready("web-1")}
	if o := before[0].OwnerReferences; len(o) != 1 || o[0].Kind != "Deployment" || o[0].Name != "web" {
		t.Errorf("owner is %+v", o)
	}
	in.asks("ClusterFirst", "default", "wget -qO- http://front:8080 | cut -c1-4", "web-")
	in.asks("ClusterFirst", "default", "nslookup -type=srv _http._tcp.front.default.svc.cluster.local | grep -o '80 .*'", "80 front.default.svc.cluster.local")

	in.put("web", deployment(2, "echo second; "+web))
	for i, name := range []string{"web-0", "web-1"} {
		p := in.pod(name, "has been rolled", func(p corev1.Pod) bool { return isReady(p) && containerID(p, "c") != containerID(before[i], "c") })
		if p.UID != before[i].UID || p.Status.PodIP != before[i].Status.PodIP {
			t.Errorf("%s was replaced, not changed in place", name)
		}
	}
	rolled := in.ready("web-0")
	in.kill9()
	in.start()
	in.put("web", deployment(3, "echo second; "+web))
	in.ready("web-2")
	if again := in.ready("web-0"); containerID(again, "c") != containerID(rolled, "c") {
		t.Error("a restart of the agent, or another number of pods, restarted a container")
	}
	in.put("web", deployment(1, "echo second; "+web))
	in.podNames("web-0")
	in.drop("web")
	in.podNames()
}

func TestADaemonSetRunsOnceAndAReplicaSetAsOftenAsItSays(t *testing.T) {
	in := newInstance(t)
	in.start()
	set := func(kind, script string) string {
		text := strings.NewReplacer("kind: Deployment", "kind: "+kind, "web", strings.ToLower(kind)).Replace(deployment(2, script))
		if kind == "DaemonSet" {
			text = strings.Replace(text, "  replicas: 2\n", "", 1)
		}
		return text
	}
	in.put("daemons", strings.Replace(set("DaemonSet", "true"), "name: front", "name: back", 1))
	in.put("replicas", set("ReplicaSet", "true"))
	in.podNames("daemonset-0", "replicaset-0", "replicaset-1")
	before := map[string]corev1.Pod{}
	for _, name := range []string{"daemonset-0", "replicaset-0", "replicaset-1"} {
		before[name] = in.ready(name)
		kind := map[bool]string{true: "DaemonSet", false: "ReplicaSet"}[name == "daemonset-0"]
		if o := before[name].OwnerReferences; len(o) != 1 || o[0].Kind != kind {
			t.Errorf("the owner of %s is %+v", name, o)
		}
	}
	in.put("daemons", strings.Replace(set("DaemonSet", "echo second"), "name: front", "name: back", 1))
	in.pod("daemonset-0", "has been rolled", func(p corev1.Pod) bool {
		return isReady(p) && containerID(p, "c") != containerID(before["daemonset-0"], "c")
	})
	in.put("replicas", strings.Replace(set("ReplicaSet", "true"), "replicas: 2", "replicas: 1", 1))
	in.podNames("daemonset-0", "replicaset-0")
	if p := in.ready("replicaset-0"); containerID(p, "c") != containerID(before["replicaset-0"], "c") {
		t.Error("a smaller number restarted the pod that stays")
	}
	in.drop("daemons")
	in.podNames("replicaset-0")
}

func TestAStatefulSetStartsInOrderAndItsPodsFindEachOther(t *testing.T) {
	in := newInstance(t)
	in.start()
	set := strings.Replace(deployment(2, web), "kind: Deployment", "kind: StatefulSet", 1)
	in.put("web", strings.Replace(set, "  replicas:", "  serviceName: front\n  replicas:", 1))
	first, second := in.ready("web-0"), in.ready("web-1")
	if second.CreationTimestamp.Before(&first.CreationTimestamp) {
		t.Errorf("web-1 was made at %v, before web-0 at %v", second.CreationTimestamp, first.CreationTimestamp)
	}
	in.asks("ClusterFirst", "default", "wget -qO- http://web-1.front:8080", "web-1")
}

func TestAJobCompletesOnceAlsoOverRestartsOfTheAgent(t *testing.T) {
	in := newInstance(t)
	in.start()
	job := fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  completions: 3
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      volumes: [{name: out, hostPath: {path: %s}}]
      containers:
      - {name: c, image: %s, command: [sh, -c, "echo $JOB_COMPLETION_INDEX $(hostname) >> /out/log"], volumeMounts: [{name: out, mountPath: /out}]}
`, in.dir, image)
	in.put("sum", job)
	for _, name := range []string{"sum-0", "sum-1", "sum-2"} {
		in.pod(name, "has succeeded", func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	}
	in.kill9()
	in.start()
	in.podNames("sum-0", "sum-1", "sum-2")
	in.put("other", sleeper("other", "true")) // whatever else happens
	in.ready("other")
	lines := strings.Fields(in.read("log"))
	if len(lines) != 6 || !strings.Contains(in.read("log"), "2 sum-2\n") {
		t.Errorf("the Job did %q", lines)
	}
}

func TestACronJobRuns(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("tick", fmt.Sprintf(`apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: %s, command: [echo, tock]}]}}}}
`, image))
	deadline := time.Now().Add(2 * patience)
	in.eventuallyUntil(deadline, "a run has succeeded", func() error {
		all, err := in.pods()
		for name, p := range all {
			if strings.HasPrefix(name, "tick-") && p.Status.Phase == corev1.PodSucceeded {
				return nil
			}
		}
		return errors.Join(fmt.Errorf("%d pods", len(all)), err)
	})
}
