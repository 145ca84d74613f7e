package plan_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/retry"
	"monopod/runner/runtimetest"
)

func TestFailureKeysOfActions(t *testing.T) {
	for want, kinds := range map[string][]runner.ActionKind{
		"id:7": {
			runner.RecordHealth, runner.MarkStarted, runner.RunHook, runner.MarkStopping, runner.StopContainer, runner.KillContainer,
			runner.FinishContainer, runner.RemoveContainer,
		},
		"volumes:": {runner.SyncVolumes},
		"resize:a": {runner.UpdateResources},
		"a":        {runner.EnsureImage, runner.CreateContainer, runner.StartContainer},
	} {
		for _, kind := range kinds {
			if got := plan.FailureKey(runner.Action{Kind: kind, Container: "a", ContainerID: "7"}); got != want {
				t.Errorf("%s: %q, want %q", kind, got, want)
			}
		}
	}
	for want, a := range map[string]runner.Action{
		"":              {Kind: runner.CreateSandbox},
		"recorded:":     {Kind: runner.CreateSandbox, Manifest: runner.RecordedManifest},
		"recorded:a":    {Kind: runner.CreateContainer, Manifest: runner.RecordedManifest, Container: "a"},
		"resize:":       {Kind: runner.UpdateResources},
		"id:":           {Kind: runner.StopContainer, Manifest: runner.RecordedManifest},
		plan.VolumesKey: {Kind: runner.SyncVolumes, Container: "a"},
	} {
		if got := plan.FailureKey(a); got != want {
			t.Errorf("%+v: %q, want %q", a, got, want)
		}
	}
}

func TestImageFailuresAreThoseOfTheImage(t *testing.T) {
	for reason, want := range map[string]bool{
		runner.ReasonErrImagePull: true, runner.ReasonImagePullBackOff: true, runner.ReasonErrImageNeverPull: true, runner.ReasonInvalidImageName: true,
		runner.ReasonImageInspectError: true, runner.ReasonSignatureValidationFailed: true, runner.ReasonImageNotAllowed: true,
		runner.ReasonCreateContainerError: false, runner.ReasonCreateContainerConfigError: false, runner.ReasonFailedMount: false, "": false,
	} {
		if got := (plan.Failure{Reason: reason}).IsImage(); got != want {
			t.Errorf("%s: %t", reason, got)
		}
	}
}

func TestDoubledIsBounded(t *testing.T) {
	for count, want := range map[int]time.Duration{-1: 3, 0: 3, 1: 3, 2: 6, 3: 12, 4: 20, 5: 20, 1 << 40: 20} {
		if got := retry.Doubled(3, 20, count); got != want {
			t.Errorf("failure %d waits %d, want %d", count, got, want)
		}
	}
}

// oneContainer returns a pod with the pull policy Always and its state.
func oneContainer() (*manifests.Pod, plan.Observed) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
	pod.Object.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	return pod, runs(pod)
}

func TestRestartDoesNotDependOnTheRegistry(t *testing.T) {
	const restarted = "CreateContainer a (exited with 1, restart policy Always) StartContainer a (exited with 1, restart policy Always) RemoveContainer a (restarted)"
	pullFailed := func(after time.Duration) map[string]plan.Failure {
		return map[string]plan.Failure{"a": {Reason: runner.ReasonErrImagePull, Count: 1, At: zero.Add(-after)}}
	}
	for _, c := range []struct {
		name    string
		policy  corev1.PullPolicy
		change  func(*plan.Observed)
		want    string
		timeout time.Duration
	}{
		{"a newer image is looked for in limited time", corev1.PullAlways, nil, "[EnsureImage a " + restarted + "]", 10 * time.Second},
		{"a missing image is pulled in any time", corev1.PullIfNotPresent, nil, "[EnsureImage a " + restarted + "]", 0},
		{"the registry did not answer", corev1.PullAlways, func(o *plan.Observed) { o.Failures = pullFailed(time.Second) }, "[" + restarted + "]", 0},
		{"nor long ago", corev1.PullAlways, func(o *plan.Observed) { o.Failures = pullFailed(time.Hour) }, "[" + restarted + "]", 0},
		{"the image is missing, and the registry did not answer", corev1.PullIfNotPresent, func(o *plan.Observed) { o.Failures = pullFailed(time.Second) }, "[FinishContainer a (exited with 1)]", 0},
		{"that was long ago", corev1.PullIfNotPresent, func(o *plan.Observed) { o.Failures = pullFailed(time.Hour) }, "[EnsureImage a " + restarted + "]", 0},
		{"the registry refused", corev1.PullAlways, func(o *plan.Observed) {
			o.Failures = map[string]plan.Failure{"a": {Reason: runner.ReasonSignatureValidationFailed, Count: 1, At: zero}}
		}, "[FinishContainer a (exited with 1)]", 0},
		{"it is being pulled", corev1.PullAlways, func(o *plan.Observed) { o.Prepared = map[string]plan.Preparation{"a": plan.PreparationRunning} }, "[]", 0},
		{"it has been pulled", corev1.PullAlways, func(o *plan.Observed) { o.Prepared = map[string]plan.Preparation{"a": plan.PreparationDone} }, "[" + restarted + "]", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod, o := oneContainer()
			pod.Object.Spec.Containers[0].ImagePullPolicy = c.policy
			o.Containers[0] = with(exited("id-a", "a", 1, -1), func(e *runner.Container) { e.Hash, e.SandboxID = o.Containers[0].Hash, "s1" })
			if c.change != nil {
				c.change(&o)
			}
			o.Containers[0].Recorded = c.want == "[]"
			for _, a := range wantPlan(t, pod, o, c.want) {
				if a.Kind == runner.EnsureImage && a.Timeout != c.timeout {
					t.Errorf("%s may take %s, want %s", a, a.Timeout, c.timeout)
				}
			}
		})
	}
}

func TestStaleInstanceIsRecreatedBeforeItsStart(t *testing.T) {
	pod, o := oneContainer()
	o.Containers[0].State, o.Containers[0].StartedAt = runner.ContainerCreated, time.Time{}
	wantPlan(t, pod, o, "[StartContainer a (ready)]")
	o.Stale = map[string]bool{"id-a": true}
	wantPlan(t, pod, o, "[EnsureImage a RemoveContainer a (superseded) CreateContainer a (referenced objects may have changed) StartContainer a (referenced objects may have changed)]")
}

func TestNetworkIsSetUpBeforeAnyStart(t *testing.T) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe), testContainer("b", runtimetest.ScriptServe))
	o := runs(pod)
	o.Sandbox.Network = runner.NetworkPending
	wantPlan(t, pod, o, "[]") // running containers have a network, or need none
	for i := range o.Containers {
		o.Containers[i].State, o.Containers[i].StartedAt = runner.ContainerCreated, time.Time{}
	}
	wantPlan(t, pod, o, "[SetupNetwork (network set-up was not completed) StartContainer a (ready) StartContainer b (ready)]")
	o.Failures = map[string]plan.Failure{"": {Reason: runner.ReasonCreatePodSandboxError, Count: 1, At: zero}}
	wantPlan(t, pod, o, "[]")
}

func TestVolumesAreSyncedForRunningContainers(t *testing.T) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
	for _, c := range []struct {
		name   string
		change func(*plan.Observed)
		want   string
	}{
		{"it runs", func(*plan.Observed) {}, "[SyncVolumes (content of volumes may have changed)]"},
		{"it failed just now", func(o *plan.Observed) { o.Failures = map[string]plan.Failure{plan.VolumesKey: {Count: 1, At: zero}} }, "[]"},
		{"the manifest is only kept", func(o *plan.Observed) { o.Kept = true }, "[]"},
		{"it waits for its start", func(o *plan.Observed) { o.Containers[0].State = runner.ContainerCreated }, "[StartContainer a (ready)]"},
		{"they are in sync", func(o *plan.Observed) { o.VolumesStale = false }, "[]"},
	} {
		o := runs(pod)
		o.VolumesStale = true
		c.change(&o)
		t.Run(c.name, func(t *testing.T) { wantPlan(t, pod, o, c.want) })
	}
}

// A container that serves on ports under a new name may be a running one, renamed: it must not fail because its ports are in use.
func TestRenamedContainerWaitsForItsPorts(t *testing.T) {
	old := testPod("x", testContainer("a", runtimetest.ScriptServe))
	old.Object.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
	renamed := edited(old, func(p *corev1.Pod) { p.Spec.Containers[0].Name = "b" })
	wantPlan(t, renamed, runs(old), "[EnsureImage b CreateContainer b (first start) StopContainer a (container removed from the manifest) RecordPod (manifest changed)]")
	renamed.Object.Spec.Containers[0].Ports = nil
	wantPlan(t, renamed, runs(old), "[EnsureImage b CreateContainer b (first start) StartContainer b (first start) StopContainer a (container removed from the manifest) RecordPod (manifest changed)]")
}

func TestManifestIsRecordedWhenItMoves(t *testing.T) {
	pod := testPod("x", testContainer("a", runtimetest.ScriptServe))
	moved := func(change func(*manifests.Origin)) *manifests.Pod {
		p := edited(pod, func(*corev1.Pod) {})
		change(&p.Origin)
		return p
	}
	const records = "[RecordPod (manifest changed)]"
	for _, c := range []struct {
		name    string
		desired *manifests.Pod
		want    string
	}{
		{"the same", moved(func(*manifests.Origin) {}), "[]"},
		{"another line", moved(func(o *manifests.Origin) { o.Line = 9 }), "[]"},
		{"another file", moved(func(o *manifests.Origin) { o.File = "/m/y.yaml" }), records},
		{"another source", moved(func(o *manifests.Origin) { o.Source = "applied" }), records},
		{"a label", edited(pod, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), records},
	} {
		t.Run(c.name, func(t *testing.T) { wantPlan(t, c.desired, runs(pod), c.want) })
	}
	o := runs(pod)
	o.Sandbox.Pod = nil
	wantPlan(t, pod, o, records)
}

func TestNewSandboxIsVerifiedBeforeTheOldPodStops(t *testing.T) {
	old := testPod("x", testContainer("a", runtimetest.ScriptServe))
	next := edited(old, func(p *corev1.Pod) { p.Spec.Hostname = "other" })
	const changed = " (pod definition changed)"
	for _, c := range []struct {
		name   string
		change func(*plan.Observed)
		want   string
	}{
		{"it is verified first", func(*plan.Observed) {}, "[CheckPod" + changed + " StopContainer a" + changed + "]"},
		{"this takes time", func(o *plan.Observed) { o.Prepared = map[string]plan.Preparation{"": plan.PreparationRunning} }, "[]"},
		{"it succeeded", func(o *plan.Observed) { o.Prepared = map[string]plan.Preparation{"": plan.PreparationDone} }, "[StopContainer a" + changed + "]"},
		{"it failed", func(o *plan.Observed) { o.Failures = map[string]plan.Failure{"": {Count: 1, At: zero}} }, "[]"},
		{"the manifest is only kept", func(o *plan.Observed) { o.Kept = true }, "[]"},
		{"the old pod is ending", func(o *plan.Observed) { o.Containers[0].StopSentAt = zero }, "[]"},
		{"it has ended", func(o *plan.Observed) {
			o.Containers[0] = with(exited("id-a", "a", 0, 0), func(c *runner.Container) { c.SandboxID, c.StopSentAt = "s1", zero })
		}, fmt.Sprintf("[RemoveContainer a%[1]s RemoveSandbox%[1]s CreateSandbox%[1]s EnsureImage a CreateContainer a (first start) StartContainer a (first start)]", changed)},
	} {
		o := runs(old)
		c.change(&o)
		t.Run(c.name, func(t *testing.T) { wantPlan(t, next, o, c.want) })
	}
}
