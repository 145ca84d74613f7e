package board

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/offline"
	"monopod/internal/printer"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/why"
	"monopod/runner/ctrd"
	"monopod/runner/podstatus"
)

// remover is a Runtime that tells of pods which it is still taking apart.
type remover interface {
	Removals() []ctrd.Removal
}

// Leaves has a board show the pods that a runtime is still taking apart, until the function that it returns is called.
func (b *Board) Leaves(rt any) (end func()) {
	r, ok := rt.(remover)
	if !ok {
		return func() {}
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.removals = r.Removals
	return func() {
		b.Mu.Lock()
		defer b.Mu.Unlock()
		b.removals = nil
	}
}

// leaving are the removals of pods, except of those that there is a pod of the same name of.
func (b *Board) leaving(there func(manifests.Key) bool) []ctrd.Removal {
	b.Mu.Lock()
	removals := b.removals
	b.Mu.Unlock()
	if removals == nil {
		return nil
	}
	all := slices.DeleteFunc(removals(), func(r ctrd.Removal) bool { return there(r.Pod.Key()) })
	slices.SortFunc(all, func(x, y ctrd.Removal) int {
		return cmp.Or(x.Pod.Key().Compare(y.Pod.Key()), x.Since.Compare(y.Since))
	})
	return slices.CompactFunc(all, func(x, y ctrd.Removal) bool { return x.Pod.Key() == y.Pod.Key() })
}

// LeavingViews are the pods to show besides those that there are: a removed pod is shown until nothing is left of it.
func (b *Board) LeavingViews(views []node.PodView) []node.PodView {
	known := map[manifests.Key]bool{}
	for i := range views {
		known[manifests.Key{Namespace: views[i].Pod.Namespace, Name: views[i].Pod.Name}] = true
	}
	var all []node.PodView
	for _, r := range b.leaving(func(k manifests.Key) bool { return known[k] }) {
		all = append(all, node.PodView{Pod: removed(&r), Origin: r.Pod.Origin, Why: removalText(&r), NextTry: r.Next})
	}
	return all
}

// LeavingFacts are the same pods, for an answer of why.
func (b *Board) LeavingFacts(there []why.Pod) []why.Pod {
	known := map[manifests.Key]bool{}
	for i := range there {
		known[manifests.Key{Namespace: there[i].Object.Namespace, Name: there[i].Object.Name}] = true
	}
	var all []why.Pod
	for _, r := range b.leaving(func(k manifests.Key) bool { return known[k] }) {
		p := why.Pod{Object: removed(&r), Where: verdict.Place(r.Pod.Origin), NextTry: r.Next, Trouble: why.Trouble{Kind: string(podstatus.TroubleRemoving), Reason: "Teardown", Text: removalText(&r), Count: r.Failed}}
		p.Object.Status.Phase = corev1.PodPending // it is known that nothing of it runs
		if r.Err != nil {
			p.Trouble.Message = r.Err.Error()
		}
		all = append(all, p)
	}
	return all
}

// removed is a pod of which nothing runs any more.
func removed(r *ctrd.Removal) *corev1.Pod {
	pod := offline.Unknown(r.Pod.Object)
	pod.UID, pod.DeletionTimestamp = types.UID(r.UID), &metav1.Time{Time: r.Since}
	return pod
}

func removalText(r *ctrd.Removal) string {
	text := fmt.Sprintf("being removed: its containers have ended; mounts, network and cgroups are being removed for %s", time.Since(r.Since).Round(time.Second))
	if r.Err != nil {
		text += fmt.Sprintf(", which has failed %d times: %s", r.Failed, printer.OneLine(r.Err.Error()))
	}
	return text
}
