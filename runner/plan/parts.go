package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
	"monopod/manifests/podhash"
	"monopod/runner"
)

// A plan is made by parts that build on each other. Each part embeds the one below it and adds its own decisions:
//
//	view             the manifest that is followed and the observation: which instance was created from which definition
//	progress         how far the pod is: completed init containers, whether it has ended or was evicted
//	steps            the plan so far, and actions that need no decision: records, resizes, syncs of volumes
//	stopper          the end of containers: hooks, grace periods, order
//	containerPlanner one container: images, exchange of instances, restarts
//	sequencer        the order of containers: init containers, sidecars, rounds of restarts
//	sandboxPlanner   the sandbox: created, replaced, removed
//	failer           pods that fail as a whole: deadlines, evictions
//	reviver          sandboxes without namespaces, as after a reboot
//	planner          chooses what applies to the pod

// view is the manifest that is followed and the observation. Its methods have no side effects.
type view struct {
	now time.Time
	// pod is the desired manifest, or in parts of a plan the recorded one; manifest tells which.
	pod      *manifests.Pod
	manifest runner.Manifest
	o        Observed
	hashes   *podhash.Cache
	// ephemeral are the ephemeral containers of the sandbox, and debug their instances, which o.Containers does not have; see ephemeral.go.
	ephemeral []corev1.EphemeralContainer
	debug     []runner.Container
	// fresh reports that this plan creates the sandbox, so none of the observed containers is in it.
	fresh bool
	// evicting reports that this plan evicts the pod.
	evicting bool
	// round is the current round of the pod; see round.go.
	round int
}

// followRecord returns the view that follows the manifest recorded on the sandbox.
func (p *view) followRecord() *view {
	v := *p
	v.pod, v.manifest = p.o.Sandbox.Pod, runner.RecordedManifest
	return &v
}

type progress struct{ *view }

// draft is the plan so far.
type draft struct {
	actions []runner.Action
	next    time.Time
	// network reports that an action of the plan sets up the network.
	network bool
}

type steps struct {
	progress
	*draft
}

type stopper struct{ steps }

type containerPlanner struct {
	stopper
	// held reports that no container may be started, because an earlier one is not ready for it.
	held bool
}

type sequencer struct{ containerPlanner }

// recorded returns a sequencer that continues the same plan with the manifest recorded on the sandbox.
func (p *sequencer) recorded() *sequencer {
	q := *p
	q.view = p.followRecord()
	return &q
}

type sandboxPlanner struct{ sequencer }

type failer struct{ sandboxPlanner }

type reviver struct{ failer }

type planner struct{ reviver }

func newPlanner(v *view) *planner {
	if v.hashes == nil {
		v.hashes = &podhash.Cache{}
	}
	p := &planner{}
	p.view, p.draft = v, &draft{}
	return p
}
