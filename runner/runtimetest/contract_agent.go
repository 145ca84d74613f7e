package runtimetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
)

func testRecord(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	sb := p.sandbox()
	next := &manifests.Pod{Object: p.Object.DeepCopy(), Origin: p.Origin}
	next.Object.Labels["app"] = "renamed"
	next.Origin.File = "/contract/elsewhere.yaml"
	p.Pod = next
	p.apply(runner.Action{Kind: runner.RecordPod})
	for _, when := range []string{"at once", "after a restart"} {
		now := p.observe().Sandbox
		if diff := cmp.Diff(next, now.Pod); diff != "" {
			t.Errorf("%s the recorded pod differs (-want +got):\n%s", when, diff)
		}
		if now.ID != sb.ID || now.UID != sb.UID || now.Hash != sb.Hash || !now.CreatedAt.Equal(sb.CreatedAt) {
			t.Errorf("%s the sandbox is another: %+v", when, now)
		}
		s.restart(nil)
	}
}

func testEphemeral(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe, ScriptFail)
	own := p.Pod
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(own.Object.Spec.Containers[1])}
	own = &manifests.Pod{Object: own.Object.DeepCopy(), Origin: own.Origin}
	own.Object.Spec.Containers = own.Object.Spec.Containers[:1]
	p.Pod = own
	sb := p.sandbox()
	a := runner.Action{Kind: runner.RecordEphemeral, UID: sb.UID, Ephemeral: []corev1.EphemeralContainer{debug}}
	p.apply(a)
	p.apply(a)
	a.UID = "another"
	if err := p.try(a); err == nil {
		t.Error("it is added to a sandbox with another uid")
	}
	p.Pod = manifests.WithEphemeral(own, p.observe().Sandbox.Ephemeral)
	c := p.create(runner.Action{Container: debug.Name})
	p.start(c)
	if exit := p.exited(c.ID).Exit; exit == nil || exit.ExitCode != 3 {
		t.Errorf("exit %+v", exit)
	}
	for _, when := range []string{"at once", "after a restart"} {
		now := p.observe().Sandbox
		if diff := cmp.Diff([]corev1.EphemeralContainer{debug}, now.Ephemeral); diff != "" {
			t.Errorf("%s the ephemeral containers differ (-want +got):\n%s", when, diff)
		}
		if diff := cmp.Diff(own, now.Pod); diff != "" {
			t.Errorf("%s the recorded pod differs (-want +got):\n%s", when, diff)
		}
		s.restart(nil)
	}
}

func testPlace(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	was := p.sandbox()
	keeps := func(what string, want bool) {
		t.Helper()
		keys, err := s.rt.List(t.Context())
		if now := p.observe(); err != nil || now.Sandbox != nil || (now.Place != nil) != want || slices.Contains(keys, p.Key()) != want {
			t.Fatalf("%s: %+v, listed %v, %v", what, now, keys, err)
		} else if want && cmp.Diff(was.Pod, now.Place) != "" {
			t.Errorf("%s it is the place of another:\n%s", what, cmp.Diff(was.Pod, now.Place))
		}
	}
	for range 2 {
		p.apply(runner.Action{Kind: runner.RemoveSandbox, Remade: true})
		keeps("it is made anew", true)
		s.restart(nil)
		keeps("after a restart", true)
		s.restart(nil)
		keeps("after another one", true)
		if now := p.sandbox(); now == nil || now.ID == was.ID || p.observe().Place != nil {
			t.Fatalf("the next one: %+v", p.observe())
		}
		s.restart(nil)
		if now := p.observe(); now.Sandbox == nil || now.Place != nil {
			t.Errorf("the next one, after a restart: %+v", now)
		}
	}
	p.apply(runner.Action{Kind: runner.RemoveSandbox, Remade: true})
	p.apply(runner.Action{Kind: runner.RemoveSandbox})
	keeps("it is given up", false)
	s.restart(nil)
	keeps("it was given up", false)
}

func testFailPod(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	next := &manifests.Pod{Object: p.Object.DeepCopy(), Origin: p.Origin}
	next.Object.Spec.ActiveDeadlineSeconds = new(int64(1000))
	p.Pod = next
	before := time.Now()
	sb := p.sandbox()
	s.eventually("the sandbox has an age", func() bool { return p.observe().Sandbox.Age > sb.Age })
	if sb = p.observe().Sandbox; sb.Age > time.Since(before)+time.Second || sb.Failed != nil {
		t.Errorf("age %s after %s, failed %v", sb.Age, time.Since(before), sb.Failed)
	}
	why := cause.Cause{Kind: cause.Evicted, Resource: runner.ResourceInodes}
	for range 2 {
		p.apply(runner.Action{Kind: runner.FailPod, Failure: runner.ReasonDeadlineExceeded, Message: "too late", FailureCause: why})
	}
	began := p.observe().Sandbox.Failed
	s.restart(nil)
	now := p.observe().Sandbox
	if now.Failed == nil || now.Failed.Reason != runner.ReasonDeadlineExceeded || now.Failed.Message != "too late" || now.Failed.Cause != why || !now.Failed.At.Equal(began.At) || now.Age <= sb.Age {
		t.Errorf("after a restart: failed %+v, was %+v, age %s", now.Failed, began, now.Age)
	}
	wantTime(t, "the failure", now.Failed.At, before, time.Now())
}

func testRestart(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{podNetwork: s.h.PodNetwork}, ScriptServe, ScriptStubborn)
	p.sandbox()
	last := &runner.Termination{ContainerID: "old", ExitCode: 1, Reason: runner.ReasonError, FinishedAt: time.Unix(1700000000, 0).UTC()}
	c := p.create(runner.Action{Container: "c0", RestartCount: 4, BackOff: 80 * time.Second, Last: last})
	p.start(c)
	stubborn := p.serve("c1")
	p.apply(onInstance(runner.StopContainer, stubborn))
	before := p.observe()
	s.restart(nil)
	if diff := cmp.Diff(before, p.observe()); diff != "" {
		t.Errorf("a restart changed (-before +after):\n%s", diff)
	}
	for _, c := range before.Containers {
		if !s.h.ProcessAlive(c.PID) {
			t.Errorf("%s has ended", c.Name)
		}
	}
	p.apply(onInstance(runner.KillContainer, stubborn))
	p.exited(stubborn.ID)
}

func testExitWhileAway(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptFailSoon)
	p.sandbox()
	c := p.run("c0")
	var gone time.Time
	s.restart(func() {
		s.eventually("the process has ended", func() bool { return !s.h.ProcessAlive(c.PID) })
		gone = time.Now()
	})
	c = p.exited(c.ID)
	if c.Exit.ExitCode != 7 || c.Exit.Reason != runner.ReasonError {
		t.Errorf("%d %s, want 7 Error", c.Exit.ExitCode, c.Exit.Reason)
	}
	wantTime(t, "the end", c.Exit.FinishedAt, c.StartedAt, gone)
	p.apply(onInstance(runner.FinishContainer, c))
	if c = p.instance(c.ID); !c.Recorded || c.Exit.ExitCode != 7 {
		t.Errorf("finished: recorded %t, %+v", c.Recorded, c.Exit)
	}
}

func testStartAfterRestart(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{podNetwork: s.h.PodNetwork}, ScriptServe)
	p.sandbox()
	c := p.create(runner.Action{Container: "c0"})
	s.restart(nil)
	if now := p.instance(c.ID); now.State != runner.ContainerCreated {
		t.Fatalf("after a restart it is %s", now.State)
	}
	if p.observe().Sandbox.Network == runner.NetworkPending {
		p.apply(runner.Action{Kind: runner.SetupNetwork})
	}
	p.start(c)
	if now := p.instance(c.ID); now.State != runner.ContainerRunning || !s.h.ProcessAlive(now.PID) {
		t.Errorf("%s with pid %d", now.State, now.PID)
	}
}

func testReplaceSandbox(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{podNetwork: s.h.PodNetwork}, ScriptSucceed)
	seen := map[string]bool{}
	for range 3 { // each time with the same uid
		sb := p.sandbox()
		if sb == nil || seen[sb.ID] || !sb.Alive {
			t.Fatalf("sandbox %+v", sb)
		}
		seen[sb.ID] = true
		c := p.create(runner.Action{Container: "c0"})
		p.start(c)
		c = p.exited(c.ID)
		if c.Exit.ExitCode != 0 {
			t.Errorf("exited with %d", c.Exit.ExitCode)
		}
		p.apply(onInstance(runner.RemoveContainer, c))
		p.apply(runner.Action{Kind: runner.RemoveSandbox})
		if st := p.observe(); st.Sandbox != nil || len(st.Containers) != 0 {
			t.Fatalf("left over: %+v", st)
		}
	}
}

func testCompletedStays(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{policy: "OnFailure"}, ScriptSucceed)
	old := p.sandbox()
	c := p.create(runner.Action{Container: "c0"})
	p.start(c)
	c = p.exited(c.ID)
	p.apply(onInstance(runner.FinishContainer, c))
	p.apply(runner.Action{Kind: runner.RemoveSandbox})
	p.sandbox()
	c = p.instance(c.ID)
	if c.State != runner.ContainerExited || c.SandboxID != old.ID || c.Exit == nil || c.Exit.ExitCode != 0 {
		t.Errorf("the completed container is %+v", c)
	}
}

func testList(t *testing.T, s *suite) {
	t.Helper()
	a, b := s.newPod(podOptions{}, ScriptServe), s.newPod(podOptions{}, ScriptServe)
	a.sandbox()
	b.sandbox()
	for range 2 {
		listed := s.list()
		if !listed[a.Key()] || !listed[b.Key()] {
			t.Errorf("listed: %v", listed)
		}
		s.restart(nil)
	}
	a.apply(runner.Action{Kind: runner.RemoveSandbox})
	if listed := s.list(); listed[a.Key()] || !listed[b.Key()] {
		t.Errorf("after removing %s: %v", a.Key(), listed)
	}
}

func (s *suite) list() map[manifests.Key]bool {
	s.t.Helper()
	keys, err := s.rt.List(s.t.Context())
	if err != nil {
		s.t.Fatalf("list: %v", err)
	}
	listed := map[manifests.Key]bool{}
	for _, k := range keys {
		if listed[k] {
			s.t.Errorf("%s is listed twice", k)
		}
		listed[k] = true
	}
	return listed
}

func testWatch(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{}, ScriptServe)
	p.sandbox()
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan manifests.Key, 1000)
	ended := make(chan error, 1)
	go func() { ended <- s.rt.Watch(ctx, func(k manifests.Key) { told <- k }) }()
	// The start of a Watch cannot be seen from outside, so processes exit until one exit is reported.
	heard := false
	for wait := 20 * time.Millisecond; wait < patience && !heard; wait *= 2 {
		c := p.run("c0")
		if err := s.h.KillProcess(c.PID); err != nil {
			t.Fatal(err)
		}
		deadline := time.After(wait)
		for waiting := true; waiting; {
			select {
			case k := <-told:
				heard = k == p.Key() && p.instance(c.ID).State == runner.ContainerExited
				waiting = !heard
			case <-deadline:
				waiting = false
			}
		}
		p.exited(c.ID)
		p.apply(onInstance(runner.RemoveContainer, c))
	}
	if !heard {
		t.Error("no exit was announced")
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Watch: %v", err)
		}
	case <-time.After(patience):
		t.Error("Watch does not end with its context")
	}
}

func testParallel(t *testing.T, s *suite) {
	t.Helper()
	var g sync.WaitGroup
	for range 4 {
		p := s.newPod(podOptions{podNetwork: s.h.PodNetwork}, ScriptServe)
		g.Go(func() {
			for _, a := range []runner.Action{
				{Kind: runner.CreateSandbox, UID: "uid-" + p.Object.Name},
				{Kind: runner.EnsureImage, Container: "c0"},
				{Kind: runner.CreateContainer, Container: "c0"},
				{Kind: runner.StartContainer, Container: "c0"},
			} {
				if err := p.try(a); err != nil {
					t.Errorf("%s: %s: %v", p.Key(), a, err)
					return
				}
			}
		})
		defer func() {
			if got := names(p.observe().Containers); got != "c0:Running" {
				t.Errorf("%s: %s", p.Key(), got)
			}
		}()
	}
	g.Wait()
}

func testCreateTogether(t *testing.T, s *suite) {
	t.Helper()
	p := s.newPod(podOptions{podNetwork: s.h.PodNetwork}, ScriptServe, ScriptServe, MissingCommand, ScriptServe, ScriptServe)
	p.Object.Spec.Containers[2].Command = []string{MissingCommand}
	for i := range p.Object.Spec.Containers {
		p.Object.Spec.Containers[i].VolumeMounts = []corev1.VolumeMount{{Name: "memory", MountPath: "/m"}, {Name: "text", MountPath: "/t"}}
	}
	p.Object.Spec.Volumes = []corev1.Volume{
		{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
		{Name: "text", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			DefaultMode: new(int32(0o644)),
			Items:       []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
		}}},
	}
	p.sandbox()
	var g sync.WaitGroup
	for i := range 5 {
		g.Go(func() {
			err := p.try(runner.Action{Kind: runner.CreateContainer, Container: fmt.Sprintf("c%d", i)})
			if (err != nil) != (i == 2) {
				t.Errorf("create c%d: %v", i, err)
			}
			if i == 0 {
				p.apply(runner.Action{Kind: runner.StartContainer, Container: "c0"})
			}
		})
	}
	g.Wait()
	for _, when := range []string{"at once", "after a restart"} {
		states := map[string]runner.ContainerState{}
		for _, c := range p.observe().Containers {
			states[c.Name] = c.State
		}
		want := map[string]runner.ContainerState{
			"c0": runner.ContainerRunning, "c1": runner.ContainerCreated, "c3": runner.ContainerCreated, "c4": runner.ContainerCreated,
		}
		if diff := cmp.Diff(want, states); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		s.restart(nil)
	}
	for _, name := range []string{"c1", "c3", "c4"} {
		p.apply(runner.Action{Kind: runner.StartContainer, Container: name})
	}
	for _, c := range p.observe().Containers {
		if c.State != runner.ContainerRunning {
			t.Errorf("%s is %s", c.Name, c.State)
		}
	}
}
