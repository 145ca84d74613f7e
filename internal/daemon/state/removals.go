package state

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/model"
	"monopod/internal/offline"
	"monopod/internal/printer"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/node"
	"monopod/node/why"
	"monopod/runner/ctrd"
)

// remover is a runtime that reports which pods it is still removing.
type remover interface {
	Removals() []ctrd.Removal
}

// Removals shows the pods that the open runtime is still removing. The zero value is ready.
type Removals struct {
	mu   sync.Mutex
	list func() []ctrd.Removal
}

// Attach shows the removals of a runtime until the returned function is called. Runtimes without removals are ignored.
func (l *Removals) Attach(rt any) (detach func()) {
	r, ok := rt.(remover)
	if !ok {
		return func() {}
	}
	l.set(r.Removals)
	return func() { l.set(nil) }
}

func (l *Removals) set(list func() []ctrd.Removal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = list
}

// unless returns one removal for each name, sorted, without the names for which exists is true.
func (l *Removals) unless(exists func(manifests.Key) bool) []ctrd.Removal {
	l.mu.Lock()
	list := l.list
	l.mu.Unlock()
	if list == nil {
		return nil
	}
	all := slices.DeleteFunc(list(), func(r ctrd.Removal) bool { return exists(r.Pod.Key()) })
	slices.SortFunc(all, func(x, y ctrd.Removal) int {
		return cmp.Or(x.Pod.Key().Compare(y.Pod.Key()), x.Since.Compare(y.Since))
	})
	return slices.CompactFunc(all, func(x, y ctrd.Removal) bool { return x.Pod.Key() == y.Pod.Key() })
}

// Views returns the pods to show besides the given ones: a removed pod is shown until nothing of it is left.
func (l *Removals) Views(views []node.PodView) []node.PodView {
	known := map[manifests.Key]bool{}
	for i := range views {
		known[manifests.Key{Namespace: views[i].Pod.Namespace, Name: views[i].Pod.Name}] = true
	}
	var all []node.PodView
	for _, r := range l.unless(func(k manifests.Key) bool { return known[k] }) {
		all = append(all, node.PodView{Pod: removed(&r), Origin: r.Pod.Origin, Why: removalText(&r), NextTry: r.Next})
	}
	return all
}

// Facts returns the pods that Views would return, as facts for `why`.
func (l *Removals) Facts(existing []why.Pod) []why.Pod {
	known := map[manifests.Key]bool{}
	for i := range existing {
		known[manifests.Key{Namespace: existing[i].Object.Namespace, Name: existing[i].Object.Name}] = true
	}
	var all []why.Pod
	for _, r := range l.unless(func(k manifests.Key) bool { return known[k] }) {
		p := why.Pod{Object: removed(&r), Where: verdict.Place(r.Pod.Origin), NextTry: r.Next, Trouble: model.Trouble{Kind: model.TroubleRemoving, Reason: "Teardown", Text: removalText(&r), Count: r.Failed}}
		p.Object.Status.Phase = corev1.PodPending // its containers have ended
		if r.Err != nil {
			p.Trouble.Message = r.Err.Error()
		}
		all = append(all, p)
	}
	return all
}

// removed returns the object of a pod whose containers have ended.
func removed(r *ctrd.Removal) *corev1.Pod {
	pod := offline.Unknown(r.Pod.Object)
	pod.UID, pod.DeletionTimestamp = types.UID(r.UID), &metav1.Time{Time: r.Since}
	return pod
}

func removalText(r *ctrd.Removal) string {
	text := fmt.Sprintf("being removed: its containers have exited; removing mounts, network and cgroups for %s", time.Since(r.Since).Round(time.Second))
	if r.Err != nil {
		text += fmt.Sprintf(", failed %d times: %s", r.Failed, printer.OneLine(r.Err.Error()))
	}
	return text
}
