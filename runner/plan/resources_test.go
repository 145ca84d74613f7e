package plan_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
	"monopod/runner/runtimetest"
)

// limited returns a pod with containers a and b; a has these limits of cpu and memory.
func limited(cpu, memory string, policy ...corev1.ContainerResizePolicy) *manifests.Pod {
	return edited(testPod("x", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe)), func(p *corev1.Pod) {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
		p.Spec.Containers[0].ResizePolicy = policy
	})
}

// runs returns the state of a pod that runs as desired.
func runs(pod *manifests.Pod) plan.Observed {
	o := plan.Observed{PodState: runner.PodState{Sandbox: &runner.Sandbox{
		ID: "s1", UID: "u", Hash: podhash.Sandbox(pod.Object), Pod: pod, Alive: true, Network: runner.NetworkReady,
		QOSClass: manifests.QOSClass(pod.Object), ResourcesHash: podhash.PodResources(pod.Object),
	}}}
	for i := range pod.Object.Spec.Containers {
		c := &pod.Object.Spec.Containers[i]
		o.Containers = append(o.Containers, runner.Container{
			ID: "id-" + c.Name, Name: c.Name, SandboxID: "s1", State: runner.ContainerRunning, Image: c.Image,
			Hash: podhash.Container(pod.Object, c.Name), ResourcesHash: podhash.Resources(pod.Object, c.Name),
			Resources: new(manifests.Resizable(c.Resources)), PodResources: new(manifests.PodResizable(&pod.Object.Spec)), StartedAt: zero,
		})
	}
	return o
}

func TestResize(t *testing.T) {
	restart := func(name corev1.ResourceName) corev1.ContainerResizePolicy {
		return corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer}
	}
	old := limited("1", "1Gi")
	for _, c := range []struct {
		name    string
		desired *manifests.Pod
		change  func(*plan.Observed)
		want    string
	}{
		{"nothing changed", limited("1", "1Gi"), nil, "[]"},
		{"in other words", limited("1000m", "1024Mi"), nil, "[]"},
		{"more cpu", limited("2", "1Gi"), nil, "[UpdateResources a (resources changed) RecordPod (manifest changed)]"},
		{"less memory", limited("1", "1Mi"), nil, "[UpdateResources a (resources changed) RecordPod (manifest changed)]"},
		{"the pod's cgroup is last", limited("2", "1Gi"), func(o *plan.Observed) {
			o.Containers[0].ResourcesHash = podhash.Resources(limited("2", "1Gi").Object, "a")
		}, "[UpdateResources (resources changed) RecordPod (manifest changed)]"},
		{"a policy for the other resource", limited("2", "1Gi", restart("memory")), nil, "[UpdateResources a (resources changed) RecordPod (manifest changed)]"},
		{"a policy for this resource", limited("2", "1Gi", restart("cpu")), nil, "[EnsureImage a CreateContainer a (resize requires restart) StopContainer a (resize requires restart) RecordPod (manifest changed)]"},
		{"the new instance is created", limited("2", "1Gi", restart("cpu")), func(o *plan.Observed) {
			n := runs(limited("2", "1Gi", restart("cpu"))).Containers[0]
			n.ID, n.State, n.StartedAt = "id-new", runner.ContainerCreated, time.Time{}
			o.Containers = append(o.Containers, n)
		}, "[StopContainer a (definition changed) RecordPod (manifest changed)]"},
		{"an instance that is about to start is recreated", limited("2", "1Gi"), func(o *plan.Observed) {
			o.Containers[0].State = runner.ContainerCreated
		}, "[EnsureImage a RemoveContainer a (superseded) CreateContainer a (resize requires restart) StartContainer a (resize requires restart) UpdateResources (resources changed) RecordPod (manifest changed)]"},
		{"a stopping instance is left alone", limited("2", "1Gi"), func(o *plan.Observed) {
			o.Containers[0].StopSentAt = zero
		}, ""},
		{"a refusal is tried again later", limited("1", "1Mi"), func(o *plan.Observed) {
			o.Failures = map[string]plan.Failure{"resize:a": {Reason: runner.ReasonResizeError, Count: 1, At: zero}}
		}, "[RecordPod (manifest changed)]"},
		{"a pod that is only kept is not resized", limited("2", "1Gi"), func(o *plan.Observed) { o.Kept = true }, "[]"},
		{"a change of the class replaces the pod", testPodAB(), nil, "[CheckPod (pod definition changed) StopContainer a (pod definition changed) StopContainer b (pod definition changed)]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := runs(old)
			if c.change != nil {
				c.change(&o)
			}
			actions, _ := plan.Plan(zero, c.desired, o)
			if got := fmt.Sprint(actions); c.want != "" && got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for _, a := range actions {
				if c.want == "" && a.Kind == runner.UpdateResources && a.Container == "a" {
					t.Errorf("%s", a)
				}
			}
		})
	}
}

// TestResizeOfThePodAsAWhole has the rules of a kubelet (computePodResizeAction): a limit of the pod is that of the containers without one.
func TestResizeOfThePodAsAWhole(t *testing.T) {
	whole := func(request, limit string, own corev1.ResourceList) *manifests.Pod {
		return edited(testPod("x", testContainer("a", runtimetest.ScriptServe)), func(p *corev1.Pod) {
			p.Spec.Resources = &corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(request)}, Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(limit)},
			}
			p.Spec.Containers[0].Resources.Limits = own
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}}
		})
	}
	own := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
	const (
		inPlace  = "[UpdateResources a (resources changed) RecordPod (manifest changed)]"
		restarts = "[EnsureImage a CreateContainer a (resize requires restart) StopContainer a (resize requires restart) RecordPod (manifest changed)]"
	)
	for _, c := range []struct {
		name     string
		old, now *manifests.Pod
		change   func(*plan.Observed)
		want     string
	}{
		{"nothing", whole("1", "2", nil), whole("1", "2", nil), nil, "[]"},
		{"the limit of the container", whole("1", "2", nil), whole("1", "3", nil), nil, restarts},
		{"the container has one of its own", whole("1", "2", own), whole("1", "3", own), nil, inPlace},
		{"the container gets one of its own", whole("1", "2", nil), whole("1", "2", own), nil, restarts},
		{"only the request of the pod", whole("1", "2", nil), whole("500m", "2", nil), nil, inPlace},
		{"what it has was not recorded", whole("1", "2", nil), whole("1", "3", nil), func(o *plan.Observed) { o.Containers[0].PodResources = nil }, inPlace},
	} {
		o := runs(c.old)
		if c.change != nil {
			c.change(&o)
		}
		actions, _ := plan.Plan(zero, c.now, o)
		if got := fmt.Sprint(actions); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// testPodAB returns a pod like limited, without any resources.
func testPodAB() *manifests.Pod {
	return testPod("x", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe))
}

// TestStatusShowsAResizeInProgress has the condition as long as a running container, or the pod as a whole, lacks what is desired.
func TestStatusShowsAResizeInProgress(t *testing.T) {
	restart := corev1.ContainerResizePolicy{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}
	old, now := limited("1", "1Gi"), limited("2", "1Gi")
	for _, c := range []struct {
		name    string
		desired *manifests.Pod
		change  func(*plan.Observed)
		want    bool
	}{
		{"nothing changed", old, nil, false},
		{"a container is not resized", now, nil, true},
		{"the pod is not resized", now, func(o *plan.Observed) { o.Containers[0].ResourcesHash = podhash.Resources(now.Object, "a") }, true},
		{"all is done", now, func(o *plan.Observed) { *o = runs(now) }, false},
		{"what it has is unknown", now, func(o *plan.Observed) {
			o.Containers[0].ResourcesHash, o.Containers[1].ResourcesHash, o.Sandbox.ResourcesHash = "", "", ""
		}, false},
		{"nothing runs", now, func(o *plan.Observed) {
			o.Containers[0].State, o.Containers[1].State = runner.ContainerExited, runner.ContainerExited
		}, false},
		{"it has to restart", limited("2", "1Gi", restart), nil, true},
		{"the old instance stops", limited("2", "1Gi", restart), func(o *plan.Observed) {
			o.Containers[0].StopSentAt, o.Sandbox.ResourcesHash = zero, ""
		}, false},
		{"the edit may not be applied", now, func(o *plan.Observed) { o.Kept = true }, false},
		{"the pod is recreated", testPodAB(), nil, false},
		{"the pod has failed", now, func(o *plan.Observed) { o.Sandbox.Failed = &runner.PodFailure{Reason: "DeadlineExceeded"} }, false},
	} {
		o := runs(old)
		if c.change != nil {
			c.change(&o)
		}
		s := podstatus.Of(podstatus.Input{Now: zero, Key: old.Key(), Desired: c.desired, Observed: o})
		got, ok := runtimetest.ConditionsOf(s.Pod)[corev1.PodResizeInProgress]
		if ok != c.want || ok && (got.Status != corev1.ConditionTrue || got.Reason != "" || got.Message != "") {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestStatusShowsRefusedResize(t *testing.T) {
	old, now := limited("1", "1Gi"), limited("1", "1Mi")
	o := runs(old)
	o.Failures = map[string]plan.Failure{"resize:a": {Reason: runner.ReasonResizeError, Message: "too little", Count: 1, At: zero}}
	s := podstatus.Of(podstatus.Input{Now: zero, Key: now.Key(), Desired: now, Observed: o})
	c := s.Pod.Status.Conditions[0]
	if c.Type != corev1.PodResizeInProgress || c.Status != corev1.ConditionTrue || c.Reason != "Error" || c.Message != "container a: too little" {
		t.Errorf("condition %+v", c)
	}
	if s.Why == "" {
		t.Error("nothing is said to be in the way")
	}
	a := s.Pod.Status.ContainerStatuses[0]
	if a.Resources.Limits.Memory().String() != "1Gi" || a.AllocatedResources.Memory().String() != "1Mi" || !a.Ready {
		t.Errorf("status %+v", a)
	}
}
