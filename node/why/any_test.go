package why_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/node/why"
)

// anyCause draws a cause with some of its arguments.
func anyCause(t *rapid.T) cause.Cause {
	kinds := []cause.Kind{
		"", cause.ImageNotFound, cause.ImageUnauthorized, cause.ImageForbidden, cause.ImageRateLimited, cause.ImagePlatform, cause.ImageName,
		cause.ImageNeverPull, cause.ImageNotAllowed, cause.ImageUnsigned, cause.ImageStalled, cause.ImageBroken, cause.ImageArtifact, cause.ImagePull, cause.RegistryError,
		cause.RegistryUnknown, cause.RegistryUnreachable, cause.RegistryCertificate, cause.RegistryNotTLS, cause.NoSpace, cause.MissingConfigMap,
		cause.MissingSecret, cause.MissingKey, cause.MissingClaim, cause.NotShared, cause.ClaimUnbound, cause.HostPath, cause.Mount, cause.HostPortPod,
		cause.HostPortProcess, cause.UIDConflict, cause.PodCIDR, cause.CNIPlugin, cause.Network, cause.Sandbox, cause.CommandNotFound, cause.NonRoot, cause.Config,
		cause.ProfileUnusable, cause.Start, cause.Hook, cause.Drained, cause.ShuttingDown, cause.TooManyPods, cause.OutOfResource, cause.NodeMismatch,
		cause.UnderPressure, cause.Evicted, cause.InProgress, cause.ProbeFailed,
	}
	faults := []cause.Fault{
		"", cause.Refused, cause.TimedOut, cause.NotFound, cause.NoProgram, cause.Reserved, cause.Cordoned, cause.HandedOver, cause.NotExecutable,
		cause.Unmountable, cause.LabelsLost, cause.TooLarge, cause.UserNamespace, cause.Sysctl, cause.BridgeName, cause.Resolver, cause.Proxy,
	}
	c := cause.Cause{Kind: rapid.SampledFrom(kinds).Draw(t, "cause"), Fault: rapid.SampledFrom(faults).Draw(t, "fault"), Detail: "detail"}
	c.Container = rapid.SampledFrom([]string{"", "app", "setup", "unknown"}).Draw(t, "container of the cause")
	c.Object = cause.Object{Kind: rapid.SampledFrom([]string{"ConfigMap", "Secret", cause.Seccomp, cause.AppArmor}).Draw(t, "object"), Name: "settings"}
	c.Image = rapid.SampledFrom([]string{"", "registry.example/app:1"}).Draw(t, "image")
	c.Pod, c.Key, c.Path, c.Registry, c.Resource = "default/other", "key", "/data", "registry.example", rapid.SampledFrom([]string{"", "memory"}).Draw(t, "resource")
	return c
}

// anyState draws the state of a container.
func anyState(t *rapid.T, name string) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: name, Image: "registry.example/" + name + ":1", RestartCount: rapid.Int32Range(0, 2).Draw(t, "restarts")}
	end := &corev1.ContainerStateTerminated{
		ExitCode: rapid.SampledFrom([]int32{0, 1, 126, 127, 137, 143, 200}).Draw(t, "exit code"), FinishedAt: metav1.NewTime(now.Add(-time.Minute)),
		Reason: rapid.SampledFrom([]string{"Completed", "Error", "OOMKilled", "StartError"}).Draw(t, "exit reason"),
	}
	if end.Reason == "StartError" || rapid.Bool().Draw(t, "has a message") {
		end.Message = "message"
	}
	switch rapid.IntRange(0, 3).Draw(t, "state") {
	case 0:
		st.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	case 1:
		st.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(1, 200).Draw(t, "age")) * time.Second))}
	case 2:
		st.State.Terminated = end
	}
	if rapid.Bool().Draw(t, "has ended before") {
		st.LastTerminationState.Terminated = end
	}
	return st
}

// anyPod draws a pod with any combination of states and problems, including impossible ones.
func anyPod(t *rapid.T, name string) why.Pod {
	p := web()
	p.Object.Name = name
	p.Object.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "registry.example/setup:1"}}
	p.Object.Spec.HostNetwork = rapid.Bool().Draw(t, "host network")
	p.Object.Spec.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{"Always", "OnFailure", "Never"}).Draw(t, "restart policy")
	p.Object.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Succeeded", "Failed", "Unknown", ""}).Draw(t, "phase")
	p.Object.Status.Conditions[0].Status = rapid.SampledFrom([]corev1.ConditionStatus{"True", "False"}).Draw(t, "ready")
	p.Object.Status.InitContainerStatuses = []corev1.ContainerStatus{anyState(t, "setup")}
	p.Object.Status.ContainerStatuses = []corev1.ContainerStatus{anyState(t, "app")}
	if rapid.IntRange(0, 3).Draw(t, "no status") == 0 {
		p.Object.Status.InitContainerStatuses, p.Object.Status.ContainerStatuses = nil, nil
	}
	container := rapid.SampledFrom([]string{"", "app", "setup", "unknown"}).Draw(t, "container")
	p.Trouble = model.Trouble{
		Kind: rapid.SampledFrom([]model.TroubleKind{
			"", "Blind", "Removing", "Held", "Halted", "Step", "Failed", "InProgress", "Exited", "Probe", "Resize", "Kept",
		}).Draw(t, "trouble"),
		Container: container, Message: "message", Text: "text",
		Reason: rapid.SampledFrom([]string{
			"Error", "Teardown", "Evicted", "Preempting", "DeadlineExceeded", "Liveness", "Readiness", "Startup",
		}).Draw(t, "reason"),
		Count: rapid.IntRange(0, 3).Draw(t, "count"), Cause: anyCause(t), Final: rapid.Bool().Draw(t, "final"), Stopping: rapid.Bool().Draw(t, "stopping"),
	}
	p.StoppedFor = map[string]string{"app": rapid.SampledFrom([]string{"", "LivenessProbe", "StartupProbe", "PostStartHookError"}).Draw(t, "stopped for")}
	if rapid.Bool().Draw(t, "has more troubles") {
		p.More = []model.Trouble{{Kind: "Exited", Container: "app", Reason: "Error", Message: "message", Text: "text"}, {Kind: "Step", Container: "setup", Reason: "Error", Message: "message", Text: "text", Cause: anyCause(t)}}
	}
	if p.Trouble.Kind == "" && rapid.Bool().Draw(t, "no trouble") {
		p.Trouble = model.Trouble{}
	}
	if rapid.Bool().Draw(t, "is retried") {
		p.NextTry = now.Add(time.Duration(rapid.IntRange(-5, 60).Draw(t, "next try")) * time.Second)
	}
	if rapid.Bool().Draw(t, "has output") {
		p.Output = map[string][]string{"app": {rapid.SampledFrom([]string{"panic", "listen tcp :8080: bind: address already in use"}).Draw(t, "output")}}
	}
	if rapid.Bool().Draw(t, "has a listener") {
		p.Listeners = []why.Listener{{
			Protocol: "TCP", Port: 8080, PID: rapid.SampledFrom([]int{0, 42}).Draw(t, "pid"), IP: rapid.SampledFrom([]string{"", "127.0.0.1", "::1"}).Draw(t, "ip"),
			Pod: rapid.SampledFrom([]string{"", "default/other"}).Draw(t, "listening pod"),
		}}
	}
	if rapid.Bool().Draw(t, "is busy") {
		phases := []string{"", "set up network", "prepare volumes"}
		p.Doing = []model.Doing{{
			Kind: rapid.SampledFrom([]string{"CreateSandbox", "StartContainer", "StopContainer", "SetupNetwork", "Other"}).Draw(t, "action"), Container: container,
			Phase: rapid.SampledFrom(phases).Draw(t, "part"), Since: now.Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "since")) * time.Second),
		}}
	}
	p.NetworkDamaged = rapid.SampledFrom([]string{"", "the bridge is gone"}).Draw(t, "network")
	p.LogsDropped = rapid.SampledFrom([]string{"", "its output is lost"}).Draw(t, "logs")
	p.NotMirrored = rapid.SampledFrom([]string{"", "forbidden"}).Draw(t, "mirror")
	p.Update = rapid.SampledFrom([]string{"", "it waits for its group"}).Draw(t, "update")
	if rapid.Bool().Draw(t, "is rolled back") {
		p.Rollback = why.Rollback{
			Text: "revision 1 runs", Wanted: 2, ByHand: rapid.Bool().Draw(t, "by hand"), Culprit: rapid.SampledFrom([]string{"", "other"}).Draw(t, "culprit"),
		}
	}
	return p
}

// check checks what holds for each chain, whatever the facts are.
func check(t *rapid.T, c why.Chain) {
	causes := 0
	for _, s := range c.Steps {
		if s.Text == "" || strings.Contains(s.Text, "%!") || strings.Contains(s.Text, "<nil>") || strings.Contains(s.Text, "\n") {
			t.Fatalf("%s: text %q", s.Kind, s.Text)
		}
		if (s.Reason != "") != (s.Kind == why.Cause) {
			t.Fatalf("a step of kind %s has the reason %q", s.Kind, s.Reason)
		}
		if s.Kind == why.Cause {
			causes++
		}
	}
	switch {
	case c.Text == "":
		t.Fatalf("no headline: %+v", c)
	case c.Fine != (causes == 0), c.Fine != (c.Reason == ""):
		t.Fatalf("fine is %v with %d causes and the reason %q", c.Fine, causes, c.Reason)
	case !c.Fine && !slices.ContainsFunc(c.Steps, func(s why.Step) bool { return s.Reason == c.Reason }):
		t.Fatalf("no step has the reason %s", c.Reason)
	}
}

func TestAnyFactsHaveAConsistentAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := oneOf(anyPod(t, "web"))
		if rapid.Bool().Draw(t, "two pods") {
			f.Pods = append(f.Pods, anyPod(t, "other"))
		}
		f.Daemon = rapid.SampledFrom([]string{"", "", "no socket"}).Draw(t, "daemon")
		f.Hangs = f.Daemon != "" && rapid.Bool().Draw(t, "hangs")
		f.Runtime = rapid.SampledFrom([]string{"", "", "connection refused"}).Draw(t, "runtime")
		for i := range rapid.IntRange(0, 2).Draw(t, "inputs") {
			f.Inputs = append(f.Inputs, model.Input{
				Input:  fmt.Sprintf(rapid.SampledFrom([]string{"/etc/monopod/manifests/%d.yaml", "https://example.com/%d"}).Draw(t, "input"), i),
				State:  rapid.SampledFrom([]model.InputState{"Accepted", "Refused", "Ignored", "Unreachable", "Conflict"}).Draw(t, "input state"),
				Errors: []string{"line 1: wrong"}, Pods: rapid.SampledFrom([][]string{nil, {"default/web"}}).Draw(t, "its pods"), Cause: anyCause(t),
			})
		}
		all := why.All(f)
		for _, c := range all.Chains {
			check(t, c)
			if c.Fine {
				t.Fatalf("All has a chain without a problem: %+v", c)
			}
		}
		if all.Fine != (len(all.Chains) == 0) || all.Text == "" {
			t.Fatalf("fine is %v with %d chains: %q", all.Fine, len(all.Chains), all.Text)
		}
		one := why.One(f, "default", "web")
		for _, c := range one.Chains {
			check(t, c)
		}
		b, err := json.Marshal(one)
		var again why.Answer
		if err != nil || json.Unmarshal(b, &again) != nil || again.Print(clock) != one.Print(clock) {
			t.Fatalf("JSON does not keep the answer: %s, %v", b, err)
		}
	})
}

func TestInstancesAreStartedAndRestartedByTheirOwnCommand(t *testing.T) {
	for name, tt := range map[string]struct {
		instance why.Instance
		hangs    bool
		want     []string
	}{
		"the service":                  {why.Instance{}, false, []string{"systemctl start monopod"}},
		"the service hangs":            {why.Instance{}, true, []string{"journalctl -u monopod", "systemctl restart monopod"}},
		"another configuration":        {why.Instance{Config: "/tmp/c.yaml"}, false, []string{"monopod run --config /tmp/c.yaml"}},
		"only its socket is known":     {why.Instance{Socket: "/tmp/s"}, false, []string{"with the configuration of this socket"}},
		"its process is known":         {why.Instance{Socket: "/tmp/s", PID: 42}, true, []string{"ls -l /proc/42/fd/2", "kill -9 42"}},
		"its process is not known":     {why.Instance{Socket: "/tmp/s"}, true, []string{"ss -xlp | grep /tmp/s", "kill that process"}},
		"another configuration, hangs": {why.Instance{Config: "/tmp/c.yaml", Socket: "/tmp/s", PID: 7}, true, []string{"monopod run --config /tmp/c.yaml"}},
	} {
		a := why.All(why.Facts{Now: now, Daemon: "no answer", Hangs: tt.hangs, Instance: tt.instance})
		text := a.Print(clock)
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, text)
			}
		}
	}
}

func TestListenersAreNamedAsFarAsTheyAreKnown(t *testing.T) {
	for want, l := range map[string]why.Listener{
		"nginx (pid 42)":                                {Name: "nginx", PID: 42},
		"process 42":                                    {PID: 42},
		"a process that monopod cannot see":             {Name: "nginx"},
		"nginx (pid 42) of container app of pod ns/web": {Name: "nginx", PID: 42, Pod: "ns/web", Container: "app"},
	} {
		if got := l.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
