package telemetry

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/node/tracing"
	"monopod/runner"
	"monopod/runner/pool"
)

// Traces reports the steps of starting pods to a Tracer; nil disables it.
type Traces struct{ Tracer *tracing.Tracer }

func tracedPod(key manifests.Key, uid string) tracing.Pod {
	return tracing.Pod{Namespace: key.Namespace, Name: key.Name, UID: uid}
}

// Observe takes a change of a pod.
func (t *Traces) Observe(c pool.Change) {
	if t == nil {
		return
	}
	now := time.Now()
	if c.Gone || c.Status.Pod == nil {
		t.Tracer.Gone(tracedPod(c.Key, ""), now)
		return
	}
	status := &c.Status.Pod.Status
	p := tracedPod(c.Key, string(c.Status.Pod.UID))
	ended := status.Phase == corev1.PodFailed || status.Phase == corev1.PodSucceeded
	t.Tracer.Seen(p, ended || !startedAt(c.Status.Pod).IsZero(), now)
	switch {
	case ended && status.Phase == corev1.PodFailed:
		t.Tracer.Ended(p, now, failureOf(status))
	case ended:
		t.Tracer.Ended(p, now, "")
	case manifests.IsReady(c.Status.Pod):
		t.Tracer.Ready(p, now)
	}
}

// failureOf returns why a pod has failed.
func failureOf(s *corev1.PodStatus) string {
	switch {
	case s.Reason == "":
		return "the pod has failed"
	case s.Message == "":
		return s.Reason
	}
	return s.Reason + ": " + s.Message
}

// begin starts the span of an action, which is applied with the returned context. over ends it.
func (t *Traces) begin(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) (_ context.Context, over func(error)) {
	name := stepOf(a.Kind)
	if t == nil || name == "" {
		return ctx, func(error) {}
	}
	began := time.Now()
	p := tracedPod(key, a.UID)
	if a.Manifest == runner.DesiredManifest && (a.Kind == runner.CheckPod || a.Kind == runner.CreateSandbox || a.Kind == runner.ReviveSandbox) {
		t.Tracer.Again(p, began)
	}
	step := tracing.Step{Name: name, Container: a.Container, Began: began}
	if pod != nil && a.Container != "" {
		if c := manifests.FindContainer(&pod.Object.Spec, a.Container); c != nil {
			step.Image = c.Image
		}
		step.Init = containerType(pod, a.Container) == "init_container"
	}
	if a.Kind == runner.FinishContainer {
		if !step.Init || a.Exit == nil || a.Exit.StartedAt.IsZero() {
			return ctx, func(error) {} // its end is not part of a start
		}
		step.Began = a.Exit.StartedAt
	}
	span := t.Tracer.Begin(p, began, step)
	if span == nil {
		return ctx, func(error) {}
	}
	ctx = runner.WithPhases(ctx, func(ph runner.Phase) {
		span.Phase(tracing.Step{Name: ph.Name, Container: step.Container, Image: step.Image, Init: step.Init, Began: ph.Began}, ph.Over, text(ph.Err))
	})
	return ctx, func(err error) {
		over, why := time.Now(), text(err)
		if a.Kind == runner.FinishContainer {
			over = a.Exit.FinishedAt
			if why == "" && a.Exit.ExitCode != 0 {
				why = a.Exit.Reason
			}
		}
		span.End(over, why, a.Kind == runner.StartContainer && err == nil && !step.Init)
	}
}

// text returns the text of an error; empty: there is none.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// stepOf returns the span name of an action; empty: it is not part of a start.
func stepOf(kind runner.ActionKind) string {
	switch kind {
	case runner.CheckPod:
		return "check pod"
	case runner.CreateSandbox:
		return "create sandbox"
	case runner.ReviveSandbox:
		return "restore sandbox"
	case runner.SetupNetwork:
		return "repeat network"
	case runner.EnsureImage:
		return "get image"
	case runner.CreateContainer:
		return "create container"
	case runner.StartContainer:
		return "start container"
	case runner.FinishContainer:
		return "run init container"
	}
	return ""
}
