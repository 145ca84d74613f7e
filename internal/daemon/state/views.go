package state

import (
	"cmp"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/config"
	"monopod/internal/model"
	"monopod/internal/offline"
	"monopod/internal/printer"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/why"
	"monopod/runner/rollout"
)

// NotLookedAt is the reason shown for a pod that existed at startup and has not been observed yet.
const NotLookedAt = "monopod has just started and has not observed it yet"

// Pods implements node.Pods. Without a runtime it returns the desired pods in phase Unknown.
func (s *Store) Pods() ([]node.PodView, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pool != nil && s.published:
		return s.viewsLocked(), nil
	case s.trouble == nil:
		return nil, node.ErrStarting
	}
	err := fmt.Errorf("the runtime does not respond: %s", printer.OneLine(s.trouble.Error()))
	var out []node.PodView
	for _, p := range s.desired.Pods {
		out = append(out, s.withRevision(node.PodView{Pod: offline.Unseen(p), Origin: p.Origin, Why: err.Error()}))
	}
	return out, err
}

// viewsLocked returns the pods of the pool, and the existing pods that it has not observed yet.
func (s *Store) viewsLocked() []node.PodView {
	var out []node.PodView
	written := map[manifests.Key]*manifests.Pod{}
	for _, p := range s.desired.Pods {
		written[p.Key()] = p
	}
	listed := map[manifests.Key]bool{}
	for _, st := range s.pool.Pods() {
		listed[st.Key()] = true
		if s.unseen[st.Key()] && !st.Looked && st.Trouble.Kind != model.TroubleBlind {
			out = append(out, s.withRevision(node.PodView{Pod: offline.Unknown(st.Pod), Origin: st.Origin, Why: NotLookedAt}))
			continue
		}
		out = append(out, s.withRevision(node.PodView{
			Pod: st.Pod, Origin: st.Origin, Why: st.Why, NextTry: st.NextTry, Failing: st.Failing, Probes: st.Probes, Manifest: s.hashes.get(st.Recorded),
			Pending: s.pendingLocked(st.Recorded, cmp.Or(written[st.Key()], st.Desired)),
		}))
	}
	for _, hashes := range []manifestHashes{s.hashes, s.wanted} {
		maps.DeleteFunc(hashes, func(key manifests.Key, _ manifestHash) bool { return !listed[key] })
	}
	for key := range s.unseen {
		if !listed[key] {
			pod := offline.Unknown(&corev1.Pod{})
			pod.Namespace, pod.Name = key.Namespace, key.Name
			out = append(out, node.PodView{Pod: pod, Why: NotLookedAt})
		}
	}
	return out
}

// pendingLocked reports whether a pod was made from another manifest than the wanted one. A pod of a workload is wanted by the pool only; any
// other is, earlier, by the watcher.
func (s *Store) pendingLocked(recorded, wanted *manifests.Pod) bool {
	return recorded != nil && wanted != nil && recorded != wanted && s.hashes.get(recorded) != s.wanted.get(wanted)
}

// Pending returns the pods that still run as an earlier manifest says.
func Pending(views []node.PodView) map[manifests.Key]bool {
	pending := map[manifests.Key]bool{}
	for _, v := range views {
		if v.Pending {
			pending[manifests.Key{Namespace: v.Pod.Namespace, Name: v.Pod.Name}] = true
		}
	}
	return pending
}

// withRevision adds the running revision to a view.
func (s *Store) withRevision(v node.PodView) node.PodView {
	r, ok := s.Rollouts.View(manifests.Key{Namespace: v.Pod.Namespace, Name: v.Pod.Name})
	if !ok {
		return v
	}
	v.Revision = node.RevisionView{Number: r.Active, Rollback: RollbackText(r), Update: UpdateText(r)}
	if r.Rollback != nil {
		v.Revision.Written, v.Pending = r.Written, false
	}
	v.Why = cmp.Or(v.Why, v.Revision.Rollback, v.Revision.Update)
	return v
}

// RollbackText describes a rollback; empty: the pod runs the revision of its manifest.
func RollbackText(v rollout.View) string {
	r := v.Rollback
	if r == nil {
		return ""
	}
	why := "by hand"
	if r.Kind == rollout.Automatic {
		why = r.Reason
	}
	return fmt.Sprintf("revision %d runs instead of %d until the manifest changes: %s", v.Active, v.Wanted, why)
}

// RollbackOf returns a rollback as a fact for `why`.
func RollbackOf(v rollout.View) why.Rollback {
	if v.Rollback == nil {
		return why.Rollback{}
	}
	return why.Rollback{Text: RollbackText(v), Wanted: v.Wanted, ByHand: v.Rollback.Kind != rollout.Automatic, Culprit: v.Rollback.Culprit}
}

// UpdateText describes an update in progress; empty: there is none.
func UpdateText(v rollout.View) string {
	switch {
	case v.Waits != manifests.Key{}:
		return fmt.Sprintf("revision %d waits until pod %s, which precedes it in its update group, is Ready", v.Wanted, v.Waits)
	case v.Trial != nil && v.Trial.ReadyAt != 0:
		return fmt.Sprintf("revision %d is on trial: it must stay Ready, or it is rolled back to revision %d", v.Active, v.Base)
	case v.Trial != nil:
		return fmt.Sprintf("revision %d is on trial: it must become Ready in time, or it is rolled back to revision %d", v.Active, v.Base)
	}
	return ""
}

// Inputs implements node.Inputs.
func (s *Store) Inputs() []model.Input {
	d, _ := s.Desired()
	out := []model.Input{}
	for _, r := range s.Workloads.report(d.Inputs) {
		if IsOwnDirectory(r) {
			continue
		}
		out = append(out, r)
	}
	return out
}

// IsOwnDirectory reports whether a report is about the empty directory of applied objects, which users do not know.
func IsOwnDirectory(r model.Input) bool {
	return r.Source == config.SourceApplied && r.State == model.InputAccepted && len(r.Pods)+len(r.Objects) == 0
}

// manifestHashes caches the hashes of recorded manifests. An entry is valid while its object has the same address: recorded manifests do not change.
type manifestHashes map[manifests.Key]manifestHash

type manifestHash struct {
	of   *corev1.Pod
	hash string
}

// get returns the hash of a recorded manifest; empty: there is no manifest.
func (m manifestHashes) get(p *manifests.Pod) string {
	if p == nil {
		return ""
	}
	h := m[p.Key()]
	if h.of != p.Object {
		h = manifestHash{of: p.Object, hash: rollout.Hash(p.Object)}
		m[p.Key()] = h
	}
	return h.hash
}
