package podstatus_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/manifests/podhash"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
)

// statusCase describes a pod with containers a, b, ... in the given states.
type statusCase struct {
	policy    corev1.RestartPolicy
	instances []runner.Container
	failures  map[string]plan.Failure
	prepared  map[string]plan.Preparation
	change    func(*podstatus.Input)
}

func (c statusCase) input(names ...string) podstatus.Input {
	var containers []corev1.Container
	for _, n := range names {
		containers = append(containers, testContainer(n, ""))
	}
	pod := edited(testPod("web", containers...), func(p *corev1.Pod) {
		if c.policy != "" {
			p.Spec.RestartPolicy = c.policy
		}
	})
	in := podstatus.Input{
		Now: at(100), Key: pod.Key(), Desired: pod,
		Observed: plan.Observed{
			PodState: runner.PodState{
				Sandbox: &runner.Sandbox{
					ID: "s", UID: "uid", Pod: pod, CreatedAt: at(0), Alive: true, Network: runner.NetworkReady, IPs: []string{"10.0.0.5", "fd00::5"},
					Hash: podhash.Sandbox(pod.Object),
				},
				Containers: c.instances,
			},
			Failures: c.failures, Prepared: c.prepared, NewUID: "next-uid",
		},
		Node: podstatus.Node{Name: "node", IPs: []string{"192.0.2.1", "2001:db8::1"}},
	}
	if c.change != nil {
		c.change(&in)
	}
	return in
}

func TestPhaseAndWhy(t *testing.T) {
	tests := []struct {
		name  string
		c     statusCase
		phase corev1.PodPhase
		why   string // a part of it; empty: no problem
	}{
		{"all run", statusCase{instances: []runner.Container{running("1", "a", 1), running("2", "b", 2)}}, corev1.PodRunning, ""},
		{"one is not created yet", statusCase{instances: []runner.Container{running("1", "a", 1)}}, corev1.PodPending, "container b: being created"},
		{"one waits to start", statusCase{instances: []runner.Container{running("1", "a", 1), created("2", "b")}}, corev1.PodPending, "container b: about to start"},
		{
			"one image is being pulled",
			statusCase{instances: []runner.Container{running("1", "a", 1)}, prepared: map[string]plan.Preparation{"b": plan.PreparationRunning}},
			corev1.PodPending, "pulling image busybox:1",
		},
		{
			"one crash-loops",
			statusCase{instances: []runner.Container{
				running("1", "a", 1), with(exited("2", "b", 1, 99), func(c *runner.Container) { c.BackOff = 40 * time.Second }),
			}},
			corev1.PodRunning, "container b: exited with 1 (Error), to be restarted at 2026-01-02T03:02:19Z",
		},
		{
			"all crash-loop",
			statusCase{instances: []runner.Container{exited("1", "a", 1, 99), exited("2", "b", 1, 99)}},
			corev1.PodRunning, "container a: exited with 1",
		},
		{"all have completed", statusCase{policy: "OnFailure", instances: []runner.Container{exited("1", "a", 0, 90), exited("2", "b", 0, 91)}}, corev1.PodSucceeded, ""},
		{
			"one has failed for good",
			statusCase{policy: "Never", instances: []runner.Container{exited("1", "a", 0, 90), exited("2", "b", 3, 91)}},
			corev1.PodFailed, "container b: exited with 3 (Error), not restarted by restart policy Never",
		},
		{
			"one has completed, the other runs",
			statusCase{policy: "Never", instances: []runner.Container{exited("1", "a", 0, 90), running("2", "b", 1)}},
			corev1.PodRunning, "",
		},
		{
			"an edit cannot be carried out",
			statusCase{
				instances: []runner.Container{running("1", "a", 1), running("2", "b", 1)},
				failures:  map[string]plan.Failure{"b": {Reason: runner.ReasonErrImagePull, Message: "no such host"}},
			},
			corev1.PodRunning, "container b: ErrImagePull: no such host; the old one continues",
		},
		{
			"the pod cannot be replaced",
			statusCase{
				instances: []runner.Container{running("1", "a", 1), running("2", "b", 1)},
				failures:  map[string]plan.Failure{"": {Reason: runner.ReasonErrImagePull, Message: "no such host"}},
			},
			corev1.PodRunning, "ErrImagePull: no such host; running containers continue",
		},
		{
			"the runtime does not answer",
			statusCase{
				instances: []runner.Container{running("1", "a", 1), running("2", "b", 1)},
				change:    func(in *podstatus.Input) { in.Blind = errors.New("connection refused") },
			},
			corev1.PodRunning, "the runtime does not respond: connection refused",
		},
		{
			"the runtime never answered",
			statusCase{change: func(in *podstatus.Input) { in.Blind, in.Sandbox = errors.New("connection refused"), nil }},
			corev1.PodUnknown, "the runtime does not respond",
		},
		{
			"a port is taken",
			statusCase{change: func(in *podstatus.Input) {
				in.Sandbox, in.Held = nil, &runner.Held{Reason: runner.ReasonHostPortConflict, Message: "host port 80/TCP is taken by pod default/x"}
			}},
			corev1.PodPending, "HostPortConflict: host port 80/TCP is taken by pod default/x",
		},
		{
			"it is being removed",
			statusCase{
				instances: []runner.Container{running("1", "b", 1), exited("2", "a", 0, 99)},
				change:    func(in *podstatus.Input) { in.Desired, in.Removing = nil, true },
			},
			corev1.PodRunning, "being removed: waiting for b to stop",
		},
		{
			"its manifest is unknown",
			statusCase{
				instances: []runner.Container{running("1", "a", 1), running("2", "b", 1)},
				change:    func(in *podstatus.Input) { in.Desired, in.Kept = nil, true },
			},
			corev1.PodRunning, "its manifest has not been read",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := podstatus.Of(tt.c.input("a", "b"))
			if s.Pod.Status.Phase != tt.phase {
				t.Errorf("phase %s, want %s", s.Pod.Status.Phase, tt.phase)
			}
			if tt.why == "" && s.Why != "" || !strings.Contains(s.Why, tt.why) {
				t.Errorf("why %q, want %q", s.Why, tt.why)
			}
			if strings.ContainsAny(s.Why, "\n") {
				t.Errorf("more than one line: %q", s.Why)
			}
		})
	}
}

// flat prints a container status: name state[/last] restarts ready.
func flat(c *corev1.ContainerStatus) string {
	state := func(s corev1.ContainerState) string {
		switch {
		case s.Running != nil:
			return "running"
		case s.Waiting != nil:
			return strings.TrimSpace("waiting " + s.Waiting.Reason + " " + s.Waiting.Message)
		case s.Terminated != nil:
			b, _ := json.Marshal(s.Terminated.ExitCode)
			return "terminated " + s.Terminated.Reason + " " + string(b)
		}
		return ""
	}
	b, _ := json.Marshal(c.RestartCount)
	return strings.Join([]string{state(c.State), state(c.LastTerminationState), string(b)}, "; ")
}

func TestContainerStatus(t *testing.T) {
	last := &runner.Termination{ContainerID: "0", ExitCode: 2, Reason: runner.ReasonError, FinishedAt: at(1)}
	second := func(c *runner.Container) { c.RestartCount, c.Last, c.BackOff = 1, last, 10*time.Second }
	pull := plan.Failure{Reason: runner.ReasonErrImagePull, Message: "no such host", At: at(99), Count: 1}
	tests := []struct {
		name string
		c    statusCase
		want string // state; last state; restarts
	}{
		{"nothing of it exists", statusCase{}, "waiting ContainerCreating; ; 0"},
		{"it is created", statusCase{instances: []runner.Container{with(created("1", "a"), second)}}, "waiting ContainerCreating; terminated Error 2; 1"},
		{"it runs", statusCase{instances: []runner.Container{with(running("1", "a", 1), second)}}, "running; terminated Error 2; 1"},
		{"it is about to be restarted", statusCase{instances: []runner.Container{exited("1", "a", 1, 99)}}, "terminated Error 1; ; 0"},
		{
			"it waits for its restart",
			statusCase{instances: []runner.Container{with(exited("1", "a", 1, 99), second)}},
			"waiting CrashLoopBackOff back-off 10s restarting failed container=a pod=web_default(uid); terminated Error 1; 1",
		},
		{"it has completed", statusCase{policy: "Never", instances: []runner.Container{exited("1", "a", 0, 99)}}, "terminated Completed 0; ; 0"},
		{
			"its image cannot be had",
			statusCase{failures: map[string]plan.Failure{"a": pull}},
			`waiting ImagePullBackOff Back-off pulling image "busybox:1": ErrImagePull: no such host; ; 0`,
		},
		{
			"its image is being pulled again",
			statusCase{failures: map[string]plan.Failure{"a": pull}, prepared: map[string]plan.Preparation{"a": plan.PreparationRunning}},
			"waiting ErrImagePull no such host; ; 0",
		},
		{"its image is being pulled", statusCase{prepared: map[string]plan.Preparation{"a": plan.PreparationRunning}}, "waiting ContainerCreating pulling image busybox:1; ; 0"},
		{
			"it cannot be created",
			statusCase{failures: map[string]plan.Failure{"a": {Reason: runner.ReasonCreateContainerConfigError, Message: "no such volume"}}},
			"waiting CreateContainerConfigError no such volume; ; 0",
		},
		{
			"it cannot be restarted",
			statusCase{
				instances: []runner.Container{exited("1", "a", 1, 90)},
				failures:  map[string]plan.Failure{"a": {Reason: runner.ReasonRunContainerError, Message: "no such program"}},
			},
			"waiting RunContainerError no such program; terminated Error 1; 0",
		},
		{
			"the pod has no sandbox",
			statusCase{
				failures: map[string]plan.Failure{"": {Reason: runner.ReasonCreatePodSandboxError, Message: "no network"}},
				change:   func(in *podstatus.Input) { in.Sandbox = nil },
			},
			"waiting CreatePodSandboxError no network; ; 0",
		},
		{
			"a new instance waits for the old one to stop",
			statusCase{instances: []runner.Container{running("1", "a", 1), with(created("2", "a"), second)}},
			"running; ; 0",
		},
		{
			"it ended while the pod is being removed",
			statusCase{
				instances: []runner.Container{exited("1", "a", 143, 99)},
				change:    func(in *podstatus.Input) { in.Desired, in.Removing = nil, true },
			},
			"terminated Error 143; ; 0",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := podstatus.Of(tt.c.input("a"))
			c := &s.Pod.Status.ContainerStatuses[0]
			if got := flat(c); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if isRunning := c.State.Running != nil; c.Ready != isRunning || *c.Started != isRunning {
				t.Errorf("ready %t, started %t", c.Ready, *c.Started)
			}
		})
	}
}

func TestStatusMatchesKubernetesPod(t *testing.T) {
	in := statusCase{instances: []runner.Container{running("1", "a", 3), running("2", "b", 7)}}.input("a", "b")
	before := in.Desired.Object.DeepCopy()
	p := podstatus.Of(in).Pod
	if p.Kind != "Pod" || p.APIVersion != "v1" || p.UID != "uid" || p.Spec.NodeName != "node" || p.Name != "web" {
		t.Errorf("%s %s %s %s on %s", p.APIVersion, p.Kind, p.Name, p.UID, p.Spec.NodeName)
	}
	if a := p.Annotations; a["kubernetes.io/config.source"] != "file" || a["kubernetes.io/config.hash"] != "uid" || a["kubernetes.io/config.seen"] == "" {
		t.Errorf("annotations %v", a)
	}
	st := p.Status
	if st.PodIP != "10.0.0.5" || len(st.PodIPs) != 2 || st.HostIP != "192.0.2.1" || len(st.HostIPs) != 2 {
		t.Errorf("addresses %q %v, %q %v", st.PodIP, st.PodIPs, st.HostIP, st.HostIPs)
	}
	if !st.StartTime.Time.Equal(at(0)) || !p.CreationTimestamp.Time.Equal(at(0)) || st.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("start %s, creation %s, class %s", st.StartTime, p.CreationTimestamp, st.QOSClass)
	}
	if c := st.ContainerStatuses[1]; c.ContainerID != "containerd://2" || c.ImageID != "sha256:1" || c.Image != "busybox:1" {
		t.Errorf("container %+v", c)
	}
	if len(before.Annotations) != 0 || len(in.Desired.Object.Annotations) != 0 || in.Desired.Object.Spec.NodeName != "" {
		t.Error("the manifest was changed")
	}
	guaranteed := edited(in.Desired, func(p *corev1.Pod) {
		for i := range p.Spec.Containers {
			r := corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
			p.Spec.Containers[i].Resources = corev1.ResourceRequirements{Limits: r, Requests: r}
		}
	})
	in.Desired = guaranteed
	if q := podstatus.Of(in).Pod.Status.QOSClass; q != corev1.PodQOSGuaranteed {
		t.Errorf("class %s", q)
	}
}

// TestStatusOfManifestIsIgnored uses manifests that are dumps of a cluster, with a status.
func TestStatusOfManifestIsIgnored(t *testing.T) {
	old := metav1.NewTime(at(0).Add(-3 * 365 * 24 * time.Hour))
	dump := func(p *corev1.Pod) {
		p.CreationTimestamp, p.ResourceVersion = old, "7"
		p.SelfLink = "/x" //nolint:staticcheck // dumps of old clusters have it
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		p.Annotations = map[string]string{"kubernetes.io/config.seen": "2023", "kubernetes.io/config.mirror": "x", "mine": "y"}
		p.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.9.8.7", PodIPs: []corev1.PodIP{{IP: "10.9.8.7"}}, HostIP: "10.9.8.1", StartTime: &old, NominatedNodeName: "n",
			Reason: "Old", Message: "old", ContainerStatuses: []corev1.ContainerStatus{{Name: "a", Ready: true}, {Name: "gone", Ready: true}},
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "gone"}}, Conditions: []corev1.PodCondition{{Type: "Old", Status: corev1.ConditionTrue}},
			ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "x"}},
		}
	}
	tests := []struct {
		name   string
		change func(in *podstatus.Input)
	}{
		{"it runs", func(in *podstatus.Input) { in.Desired = edited(in.Desired, dump) }},
		{"nothing exists yet in the runtime", func(in *podstatus.Input) {
			in.Desired, in.Sandbox, in.Containers = edited(in.Desired, dump), nil, nil
		}},
		{"only the record is left", func(in *podstatus.Input) { in.Sandbox.Pod, in.Desired = edited(in.Desired, dump), nil }},
		{"it cannot be observed", func(in *podstatus.Input) {
			in.Desired, in.Blind = edited(in.Desired, dump), errors.New("containerd is gone")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			plain := statusCase{instances: []runner.Container{running("1", "a", 3)}}.input("a")
			dumped := statusCase{instances: []runner.Container{running("1", "a", 3)}}.input("a")
			tt.change(&dumped)
			plain.Sandbox, plain.Containers, plain.Blind = dumped.Sandbox, dumped.Containers, dumped.Blind
			plain.Desired = edited(plain.Desired, func(p *corev1.Pod) { p.Annotations = map[string]string{"mine": "y"} })
			if dumped.Desired == nil {
				s := *dumped.Sandbox
				s.Pod = plain.Desired
				plain.Sandbox, plain.Desired = &s, nil
			}
			if diff := cmp.Diff(podstatus.Of(plain).Pod, podstatus.Of(dumped).Pod); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestStatusSharesManifestWithoutChangingIt matters for memory: every pod has a status at all times.
func TestStatusSharesManifestWithoutChangingIt(t *testing.T) {
	in := statusCase{instances: []runner.Container{running("a1", "a", 1)}}.input("a", "b")
	in.Node, in.Removing = podstatus.Node{Name: "edge", IPs: []string{"192.0.2.1"}}, true
	in.Desired.Object.Annotations, in.Desired.Object.Labels = map[string]string{"x": "y"}, map[string]string{"app": "web"}
	before := in.Desired.Object.DeepCopy()
	shown := podstatus.Of(in).Pod
	if !reflect.DeepEqual(before, in.Desired.Object) {
		t.Errorf("the manifest was changed: %+v", in.Desired.Object)
	}
	if &shown.Spec.Containers[0] != &in.Desired.Object.Spec.Containers[0] {
		t.Error("the containers are a copy")
	}
	shown.Annotations["x"] = "z"
	if shown.Spec.NodeName != "edge" || !reflect.DeepEqual(before, in.Desired.Object) {
		t.Errorf("annotations are shared: %+v", in.Desired.Object.ObjectMeta)
	}
}

func TestHostNetworkPodsHaveTheNodesAddresses(t *testing.T) {
	in := statusCase{instances: []runner.Container{running("1", "a", 3)}}.input("a")
	in.Desired = edited(in.Desired, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	in.Sandbox.IPs = nil
	if st := podstatus.Of(in).Pod.Status; st.PodIP != "192.0.2.1" || len(st.PodIPs) != 2 {
		t.Errorf("%q %v", st.PodIP, st.PodIPs)
	}
	in.Sandbox.Alive = false
	if st := podstatus.Of(in).Pod.Status; st.PodIP != "" {
		t.Errorf("without a sandbox that is alive: %q", st.PodIP)
	}
}

func TestTheObservedGenerationIsThatOfTheRecordedManifest(t *testing.T) {
	in := statusCase{instances: []runner.Container{running("1", "a", 3)}}.input("a")
	in.Sandbox.Pod = edited(in.Desired, func(p *corev1.Pod) { p.Generation = 4 })
	in.Desired = edited(in.Desired, func(p *corev1.Pod) { p.Generation = 5 })
	p := podstatus.Of(in).Pod
	if p.Generation != 5 || p.Status.ObservedGeneration != 4 || p.Status.Conditions[0].ObservedGeneration != 4 {
		t.Errorf("generation %d, observed %d and %d", p.Generation, p.Status.ObservedGeneration, p.Status.Conditions[0].ObservedGeneration)
	}
}
