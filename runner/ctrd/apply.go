package ctrd

import (
	"context"
	"fmt"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/fault"
)

// Apply implements runner.Runtime.
func (r *Runtime) Apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	do := func() error { return r.apply(r.ns(ctx), key, pod, a) }
	err := do()
	if terminal(a.Kind) && r.reserve.Spend(err) {
		err = do()
	}
	if err != nil {
		return err
	}
	return r.sandboxes.Applied(key, a.Kind)
}

// terminal reports whether an action is part of stopping or removing a pod or container.
func terminal(k runner.ActionKind) bool {
	switch k {
	case runner.FailPod, runner.MarkStopping, runner.StopContainer, runner.KillContainer, runner.FinishContainer, runner.RemoveContainer, runner.RemoveSandbox:
		return true
	default:
		return false
	}
}

func (r *Runtime) apply(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	switch a.Kind {
	case runner.FailPod:
		return r.sandboxes.FailPod(ctx, key, a)
	case runner.RecordEphemeral:
		return r.sandboxes.RecordEphemeral(ctx, key, a)
	case runner.RecordHealth:
		return r.lifecycle.RecordHealth(ctx, key, a)
	case runner.MarkStarted:
		return r.lifecycle.MarkStarted(ctx, key, a)
	case runner.MarkStopping:
		return r.lifecycle.MarkStopping(ctx, key, a)
	case runner.StopContainer:
		return r.lifecycle.StopContainer(ctx, key, a)
	case runner.KillContainer:
		return r.lifecycle.KillContainer(ctx, key, a)
	case runner.FinishContainer:
		return r.lifecycle.FinishContainer(ctx, key, a)
	case runner.RemoveContainer:
		return r.lifecycle.ApplyRemoveContainer(ctx, key, a)
	case runner.RemoveSandbox:
		return r.sandboxes.RemoveSandbox(ctx, key, a)
	case runner.StartContainer:
		return r.creator.StartContainer(ctx, key, a)
	case runner.SetupNetwork:
		return r.network.SetupNetwork(ctx, key)
	}
	if pod == nil {
		return fmt.Errorf("%s needs a pod", a.Kind)
	}
	return r.applyByPod(ctx, key, pod, a)
}

// applyByPod executes the actions that need a manifest.
func (r *Runtime) applyByPod(ctx context.Context, key manifests.Key, pod *manifests.Pod, a runner.Action) error {
	switch a.Kind {
	case runner.CheckPod:
		return r.planner.CheckPod(ctx, pod)
	case runner.CreateSandbox:
		return fault.Step(runner.ReasonCreatePodSandboxError, r.sandboxes.CreateSandbox(ctx, key, pod, a))
	case runner.SyncVolumes:
		return r.secrets.SyncVolumes(key, pod)
	case runner.ReviveSandbox:
		return fault.Step(runner.ReasonCreatePodSandboxError, r.sandboxes.ReviveSandbox(ctx, key, pod))
	case runner.RecordPod:
		return r.sandboxes.RecordPod(ctx, key, pod)
	case runner.UpdateResources:
		return r.podCgroups.UpdateResources(ctx, key, pod, a)
	case runner.EnsureImage:
		return r.imageUse.EnsureImage(ctx, pod, a)
	case runner.CreateContainer:
		return r.creator.CreateContainer(ctx, key, pod, a)
	}
	return fmt.Errorf("unknown action %s", a.Kind)
}
