package runtimetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
)

func testSandbox(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	began := time.Now()
	sb := p.sandbox()
	if sb == nil {
		t.Fatal("no sandbox")
	}
	if sb.ID == "" || sb.UID != "uid-"+p.Object.Name {
		t.Errorf("id %q, uid %q", sb.ID, sb.UID)
	}
	if want := podhash.Sandbox(p.Object); sb.Hash != want {
		t.Errorf("hash %q, want %q", sb.Hash, want)
	}
	if !sb.Alive || sb.Network != runner.NetworkReady || len(sb.IPs) != 0 {
		t.Errorf("alive %t, network %s %v; want a host network that is ready", sb.Alive, sb.Network, sb.IPs)
	}
	wantTime(t, "the creation", sb.CreatedAt, began, time.Now())
	if diff := cmp.Diff(p.Pod, sb.Pod); diff != "" {
		t.Errorf("the recorded pod differs (-want +got):\n%s", diff)
	}
	p.apply(runner.Action{Kind: runner.CreateSandbox, UID: "another"})
	if again := p.observe().Sandbox; again.ID != sb.ID || again.UID != sb.UID {
		t.Errorf("creating it again made %s/%s of %s/%s", again.ID, again.UID, sb.ID, sb.UID)
	}
}

func testPodNetwork(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{podNetwork: true}, ScriptServe)
	p.sandbox()
	c := p.create(runner.Action{Container: "c0"})
	p.start(c)
	sb := p.observe().Sandbox
	if sb.Network != runner.NetworkReady || len(sb.IPs) == 0 {
		t.Errorf("a container was started, but the network is %s %v", sb.Network, sb.IPs)
	}
	p.apply(runner.Action{Kind: runner.SetupNetwork})
	if again := p.observe().Sandbox; again.Network != runner.NetworkReady || len(again.IPs) == 0 {
		t.Errorf("after setting it up again the network is %s %v", again.Network, again.IPs)
	}
}

func testLife(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	sb := p.sandbox()
	last := &runner.Termination{
		ContainerID: "old", ExitCode: 3, Reason: runner.ReasonError, Message: "it broke\nbadly",
		StartedAt: time.Unix(1700000000, 0).UTC(), FinishedAt: time.Unix(1700000100, 5000).UTC(),
	}
	began := time.Now()
	c := p.create(runner.Action{Container: "c0", RestartCount: 2, BackOff: 20 * time.Second, Last: last, Round: 3})
	want := runner.Container{
		ID: c.ID, Name: "c0", SandboxID: sb.ID, Hash: podhash.Container(p.Object, "c0"),
		ResourcesHash: podhash.Resources(p.Object, "c0"), Resources: new(manifests.Resizable(p.Object.Spec.Containers[0].Resources)),
		PodResources: new(manifests.PodResizable(&p.Object.Spec)),
		Image:        s.h.Image, ImageID: c.ImageID, ImageDigest: c.ImageDigest, State: runner.ContainerCreated, PID: c.PID,
		RestartCount: 2, BackOff: 20 * time.Second, Last: last, Round: 3, CreatedAt: c.CreatedAt,
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	if c.ID == "" || c.ImageID == "" || !strings.HasPrefix(c.ImageDigest, "sha256:") {
		t.Errorf("id %q, image id %q, digest %q", c.ID, c.ImageID, c.ImageDigest)
	}
	wantTime(t, "the creation", c.CreatedAt, began, time.Now())
	p.start(c)
	p.start(c)
	r := p.instance(c.ID)
	if r.State != runner.ContainerRunning || r.PID == 0 || !s.h.ProcessAlive(r.PID) {
		t.Errorf("after the start it is %s with pid %d", r.State, r.PID)
	}
	wantTime(t, "the start", r.StartedAt, began, time.Now())
	want.State, want.PID, want.StartedAt = runner.ContainerRunning, r.PID, r.StartedAt
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("running (-want +got):\n%s", diff)
	}
}

func testExitCodes(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{policy: "Never"}, ScriptSucceed, ScriptFail)
	p.sandbox()
	began := time.Now()
	for _, want := range []struct {
		name, reason string
		code         int
	}{{"c0", runner.ReasonCompleted, 0}, {"c1", runner.ReasonError, 3}} {
		c := p.create(runner.Action{Container: want.name})
		p.start(c)
		c = p.exited(c.ID)
		if c.Exit.ExitCode != want.code || c.Exit.Reason != want.reason {
			t.Errorf("%s: %d %s, want %d %s", want.name, c.Exit.ExitCode, c.Exit.Reason, want.code, want.reason)
		}
		wantTime(t, "the start", c.Exit.StartedAt, began, time.Now())
		wantTime(t, "the end", c.Exit.FinishedAt, began, time.Now())
		if !c.StopSentAt.IsZero() {
			t.Errorf("%s ended by itself, but was stopped at %s", want.name, c.StopSentAt)
		}
	}
}

func testKilledFromOutside(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	p.sandbox()
	c := p.run("c0")
	if err := s.h.KillProcess(c.PID); err != nil {
		t.Fatal(err)
	}
	if c = p.exited(c.ID); c.Exit.ExitCode != 137 || c.Exit.Reason != runner.ReasonError {
		t.Errorf("%d %s", c.Exit.ExitCode, c.Exit.Reason)
	}
}

func testOOM(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{memory: "16Mi"}, ScriptEatMemory)
	p.sandbox()
	c := p.create(runner.Action{Container: "c0"})
	p.start(c)
	if c = p.exited(c.ID); c.Exit.Reason != runner.ReasonOOMKilled {
		t.Errorf("%d %s", c.Exit.ExitCode, c.Exit.Reason)
	}
}

func testStop(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptSlowStop)
	p.sandbox()
	c := p.serve("c0")
	began := time.Now()
	p.apply(onInstance(runner.StopContainer, c))
	sent := p.instance(c.ID).StopSentAt
	wantTime(t, "the stop", sent, began, time.Now())
	p.apply(onInstance(runner.StopContainer, c))
	c = p.exited(c.ID)
	if c.Exit.ExitCode != 4 || c.Exit.Reason != runner.ReasonError {
		t.Errorf("%d %s, want what the handler exits with", c.Exit.ExitCode, c.Exit.Reason)
	}
	if !c.StopSentAt.Equal(sent) {
		t.Errorf("stopped at %s, but the second time says %s", sent, c.StopSentAt)
	}
	p.apply(onInstance(runner.StopContainer, c))
	p.apply(onInstance(runner.KillContainer, c))
}

func testStopSignal(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptUser)
	p.sandbox()
	c := p.serve("c0")
	stop := onInstance(runner.StopContainer, c)
	stop.Signal = "SIGUSR1"
	p.apply(stop)
	if c = p.exited(c.ID); c.Exit.ExitCode != 5 {
		t.Errorf("exited with %d, want 5", c.Exit.ExitCode)
	}
}

func testMarkStopping(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	p.sandbox()
	c := p.serve("c0")
	began := time.Now()
	first := onInstance(runner.MarkStopping, c)
	first.Cause = runner.StopPostStart
	p.apply(first)
	marked := p.instance(c.ID)
	wantTime(t, "record that it is stopping", marked.StoppingAt, began, time.Now())
	p.apply(onInstance(runner.MarkStopping, c))
	s.restart(nil)
	now := p.instance(c.ID)
	if now.State != runner.ContainerRunning || !now.StoppingAt.Equal(marked.StoppingAt) || !now.StopSentAt.IsZero() {
		t.Errorf("%s, marked at %s and then at %s, signaled at %s", now.State, marked.StoppingAt, now.StoppingAt, now.StopSentAt)
	}
	p.apply(onInstance(runner.StopContainer, c))
	if c = p.exited(c.ID); c.StopCause != runner.StopPostStart || !c.StoppingAt.Equal(marked.StoppingAt) {
		t.Errorf("cause %q, marked at %s", c.StopCause, c.StoppingAt)
	}
	again := p.serve("c0")
	stop := onInstance(runner.StopContainer, again)
	stop.Cause = runner.StopPostStart
	p.apply(stop)
	if again = p.exited(again.ID); again.StopCause != runner.StopPostStart || again.StoppingAt.IsZero() || again.StoppingAt.After(again.StopSentAt) {
		t.Errorf("stopped at once: cause %q, marked at %s, signaled at %s", again.StopCause, again.StoppingAt, again.StopSentAt)
	}
}

func testPostStart(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe, ScriptServe)
	next := &manifests.Pod{Object: p.Object.DeepCopy(), Origin: p.Origin}
	next.Object.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
		PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
	}
	p.Pod = next
	p.sandbox()
	c, without := p.run("c0"), p.run("c1")
	if c.PostStart != runner.PostStartPending || without.PostStart != runner.PostStartNone {
		t.Errorf("hooks: %q and %q", c.PostStart, without.PostStart)
	}
	s.restart(nil)
	if c = p.instance(c.ID); c.PostStart != runner.PostStartPending {
		t.Errorf("after a restart: %q", c.PostStart)
	}
	p.apply(onInstance(runner.MarkStarted, c))
	s.restart(nil)
	if c = p.instance(c.ID); c.PostStart != runner.PostStartDone || c.State != runner.ContainerRunning {
		t.Errorf("after the hook: %q, %s", c.PostStart, c.State)
	}
}

func testDigest(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	p.sandbox()
	first := p.create(runner.Action{Container: "c0"})
	p.Pod = &manifests.Pod{Object: p.Object, Origin: p.Origin, Images: map[string]string{"c0": first.ImageDigest}}
	p.apply(runner.Action{Kind: runner.RecordPod})
	s.restart(nil)
	if rec := p.observe().Sandbox.Pod; !manifests.SameImages(rec, p.Pod) {
		t.Errorf("recorded are the images %v", rec.Images)
	}
	p.apply(runner.Action{Kind: runner.EnsureImage, Container: "c0"})
	if c := p.create(runner.Action{Container: "c0"}); c.ImageDigest != first.ImageDigest || c.Image != first.Image {
		t.Errorf("made of %s, %s instead of %s, %s", c.Image, c.ImageDigest, first.Image, first.ImageDigest)
	}
	p.Pod = &manifests.Pod{Object: p.Object, Origin: p.Origin, Images: map[string]string{"c0": "sha256:" + strings.Repeat("0", 64)}}
	if err := p.try(runner.Action{Kind: runner.CreateContainer, Container: "c0"}); err == nil {
		t.Error("another digest was taken for the one that was asked for")
	}
}

func testInitContainer(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	next := &manifests.Pod{Object: p.Object.DeepCopy(), Origin: p.Origin}
	init := *p.Object.Spec.Containers[0].DeepCopy()
	init.Name, init.Command = "init", []string{"sh", "-c", ScriptFail}
	next.Object.Spec.InitContainers = append(next.Object.Spec.InitContainers, init)
	p.Pod = next
	p.sandbox()
	c := p.create(runner.Action{Container: "init"})
	if want := podhash.Container(next.Object, "init"); c.Hash != want || want == "" {
		t.Errorf("hash %q, want %q", c.Hash, want)
	}
	p.start(c)
	if c = p.exited(c.ID); c.Exit.ExitCode != 3 {
		t.Errorf("exited with %d", c.Exit.ExitCode)
	}
}

func testStubborn(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptStubborn)
	p.sandbox()
	c := p.serve("c0")
	p.apply(onInstance(runner.StopContainer, c))
	p.apply(onInstance(runner.KillContainer, c))
	if c = p.exited(c.ID); c.Exit.ExitCode != 137 {
		t.Errorf("exit code %d, want 137", c.Exit.ExitCode)
	}
}

func testFinish(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{policy: "Never"}, ScriptFail)
	p.sandbox()
	c := p.create(runner.Action{Container: "c0"})
	p.start(c)
	c = p.exited(c.ID)
	if c.Recorded {
		t.Error("recorded before it was finished")
	}
	exit := *c.Exit
	for range 2 {
		p.apply(onInstance(runner.FinishContainer, c))
		c = p.instance(c.ID)
		if !c.Recorded || c.State != runner.ContainerExited {
			t.Fatalf("%s, recorded %t", c.State, c.Recorded)
		}
		if diff := cmp.Diff(&exit, c.Exit); diff != "" {
			t.Errorf("the exit has changed (-before +now):\n%s", diff)
		}
	}
	s.restart(nil)
	if c = p.instance(c.ID); !c.Recorded || c.Exit == nil || c.Exit.ExitCode != 3 {
		t.Errorf("after a restart: recorded %t, %+v", c.Recorded, c.Exit)
	}
}

func testTwoInstances(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	p.sandbox()
	old := p.serve("c0")
	waiting := p.create(runner.Action{Container: "c0", RestartCount: 1})
	if got := names(p.observe().Containers); got != "c0:Running c0:Created" {
		t.Fatalf("instances: %s", got)
	}
	if now := p.instance(old.ID); now.PID != old.PID {
		t.Errorf("the old one has pid %d now, had %d", now.PID, old.PID)
	}
	p.apply(onInstance(runner.StopContainer, old))
	old = p.exited(old.ID)
	p.apply(runner.Action{Kind: runner.StartContainer, Container: "c0"}) // without an id: the newest
	p.apply(onInstance(runner.RemoveContainer, old))
	if got := names(p.observe().Containers); got != "c0:Running" {
		t.Errorf("instances: %s", got)
	}
	if c := p.instance(waiting.ID); c.RestartCount != 1 {
		t.Errorf("restart count %d", c.RestartCount)
	}
}

func testRemoveCreated(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	p.sandbox()
	old := p.run("c0")
	waiting := p.create(runner.Action{Container: "c0"})
	p.apply(onInstance(runner.RemoveContainer, waiting))
	if got := names(p.observe().Containers); got != "c0:Running" {
		t.Errorf("instances: %s", got)
	}
	if !s.h.ProcessAlive(old.PID) {
		t.Error("the other instance has ended")
	}
}

func testRemoveTwice(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptSucceed)
	p.sandbox()
	c := p.create(runner.Action{Container: "c0"})
	p.start(c)
	c = p.exited(c.ID)
	for range 2 {
		p.apply(onInstance(runner.RemoveContainer, c))
		if n := len(p.observe().Containers); n != 0 {
			t.Errorf("%d containers left", n)
		}
	}
	for range 2 {
		p.apply(runner.Action{Kind: runner.RemoveSandbox})
		if st := p.observe(); st.Sandbox != nil {
			t.Errorf("sandbox %s left", st.Sandbox.ID)
		}
	}
}

func testUnknown(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	st := p.observe()
	if st.Sandbox != nil || len(st.Containers) != 0 {
		t.Errorf("a pod that was never made: %+v", st)
	}
	ghost := runner.Container{
		ID: "ghost", Name: "c0", Exit: &runner.Termination{ContainerID: "ghost", Reason: runner.ReasonError, ExitCode: 1},
	}
	for _, kind := range []runner.ActionKind{
		runner.RecordHealth, runner.MarkStarted, runner.MarkStopping, runner.StopContainer, runner.KillContainer, runner.FinishContainer, runner.RemoveContainer,
	} {
		p.apply(onInstance(kind, ghost))
	}
	if err := p.rt.Apply(t.Context(), p.Key(), nil, runner.Action{Kind: runner.RemoveSandbox}); err != nil {
		t.Errorf("RemoveSandbox: %v", err)
	}
}

func testMissingCommand(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{command: []string{MissingCommand}}, "")
	p.sandbox()
	err := p.try(runner.Action{Kind: runner.CreateContainer, Container: "c0"})
	if err == nil {
		err = p.try(runner.Action{Kind: runner.StartContainer, Container: "c0"})
	}
	wantReason(t, err, runner.ReasonRunContainerError)
	if st := p.observe(); len(st.Containers) != 0 {
		t.Errorf("left over: %s", names(st.Containers))
	}
}

func testRefusedStart(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{command: []string{MissingCommand}}, "")
	p.sandbox()
	err := p.try(runner.Action{Kind: runner.CreateContainer, Container: "c0", RestartCount: 2, OrExit: true})
	if err == nil {
		err = p.try(runner.Action{Kind: runner.StartContainer, Container: "c0", OrExit: true})
	}
	wantReason(t, err, runner.ReasonStartError)
	for range 2 {
		st := p.observe()
		if len(st.Containers) != 1 {
			t.Fatalf("%d instances, want 1", len(st.Containers))
		}
		c := st.Containers[0]
		if c.State != runner.ContainerExited || c.Exit == nil || c.StartedAt.IsZero() || c.RestartCount != 2 || !c.Recorded {
			t.Fatalf("the instance is %+v", c)
		}
		if x := c.Exit; x.ExitCode != 128 || x.Reason != "StartError" || !strings.Contains(x.Message, MissingCommand) || x.FinishedAt.IsZero() {
			t.Errorf("it ended with %+v", x)
		}
		if got, want := c.Exit.Cause, (cause.Cause{Kind: cause.CommandNotFound, Program: MissingCommand}); got != want {
			t.Errorf("it was refused because of %+v, want %+v", got, want)
		}
		p.apply(runner.Action{Kind: runner.FinishContainer, Container: "c0", ContainerID: c.ID, Exit: c.Exit})
	}
	p.apply(runner.Action{Kind: runner.RemoveContainer, Container: "c0", ContainerID: p.observe().Containers[0].ID})
}

func testMissingImage(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{image: s.h.MissingImage, pull: "Never"}, ScriptServe)
	err := p.try(runner.Action{Kind: runner.EnsureImage, Container: "c0"})
	wantReason(t, err, runner.ReasonErrImageNeverPull)
	if c := cause.Of(err); c.Kind != cause.ImageNeverPull || c.Image != s.h.MissingImage {
		t.Errorf("the cause is %+v", c)
	}
	wantReason(t, p.try(runner.Action{Kind: runner.CheckPod}), runner.ReasonErrImageNeverPull)
}

func testImageProgress(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	ensure := runner.Action{Kind: runner.EnsureImage, Container: "c0"}
	p.apply(ensure)
	var told []runner.ImageProgress
	ctx := runner.WithImageProgress(t.Context(), func(progress runner.ImageProgress) { told = append(told, progress) })
	if err := s.rt.Apply(ctx, p.Key(), p.Pod, ensure); err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || !told[0].Present || told[0].Pulling || told[0].Image != p.Object.Spec.Containers[0].Image {
		t.Errorf("of an image that is here it is told: %+v", told)
	}
	never := s.newPod(podOptions{image: s.h.MissingImage, pull: "Never"}, ScriptServe)
	told = nil
	wantReason(t, s.rt.Apply(ctx, never.Key(), never.Pod, ensure), runner.ReasonErrImageNeverPull)
	if len(told) != 0 {
		t.Errorf("of an image that must not be pulled it is told: %+v", told)
	}
}

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	se, ok := errors.AsType[*runner.StepError](err)
	if !ok || se.Reason != reason {
		t.Errorf("error %v (%T), want a StepError with reason %s", err, err, reason)
	}
}

func testCheck(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	p.apply(runner.Action{Kind: runner.CheckPod})
	if st := p.observe(); st.Sandbox != nil || len(st.Containers) != 0 {
		t.Errorf("checking made %+v", st)
	}
	p.sandbox()
	c := p.run("c0")
	before := p.observe()
	p.apply(runner.Action{Kind: runner.CheckPod})
	if diff := cmp.Diff(before, p.observe()); diff != "" {
		t.Errorf("checking changed (-before +after):\n%s", diff)
	}
	if !s.h.ProcessAlive(c.PID) {
		t.Error("the process has ended")
	}
}
