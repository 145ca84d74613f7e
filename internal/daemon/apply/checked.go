package apply

import (
	"context"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"monopod/internal/config"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/watcher/applied"
)

// Writes of the Kubernetes API take the same path as those of `monopod apply`: the same lock, checks and store.

// Proposal is an object that the Kubernetes API wants to store.
type Proposal struct {
	ID manifests.ObjectID
	// Manifest is its document, without server-set metadata, which is in Note.
	Manifest []byte
	Note     *applied.Note
}

// Checked are objects that may be stored.
type Checked struct {
	objects  []*pushed
	Warnings []string
}

// AddTo adds the objects to a change.
func (c *Checked) AddTo(change *applied.Change) {
	for _, p := range c.objects {
		change.Put[p.ID], change.Notes[p.ID] = p.Canonical, p.Note
	}
}

// Begin waits until the sources have been read, and blocks other writers until end is called. It also waits until the last change is
// visible, so that no decision is based on outdated objects, but no longer than a response would wait.
func (a *Applier) Begin(ctx context.Context) (end func(), err error) {
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	a.mu.Lock()
	if a.unseen != nil {
		a.await(ctx, a.unseen)
		a.unseen = nil
	}
	return a.mu.Unlock, nil
}

// Check validates objects like Apply, but decodes strictly. Objects defined elsewhere are refused with Elsewhere. It must be called between
// Begin and end.
func (a *Applier) Check(all []Proposal) (*Checked, []*manifests.Error, error) {
	var files []localapi.ManifestFile
	notes := make(map[manifests.ObjectID]*applied.Note, len(all))
	for _, p := range all {
		files = append(files, localapi.ManifestFile{Name: applied.FileName(p.ID), Content: p.Manifest})
		notes[p.ID] = p.Note
	}
	o := decode.Options{Source: config.SourceApplied, Policy: a.Policy, Strict: true}
	o.Policy.Rejects, o.Policy.HelmHooks = true, true
	objects, remarks, errs := a.collect(judged(files, o), files, func(id manifests.ObjectID) *applied.Note { return notes[id] })
	if len(errs) > 0 {
		return nil, errs, nil
	}
	if len(objects) != len(all) {
		return nil, nil, fmt.Errorf("%d of %d objects are no manifests: %v", len(all)-len(objects), len(all), remarks)
	}
	c := &Checked{objects: objects, Warnings: remarks}
	for _, p := range objects {
		stored, err := a.Store.Get(p.ID)
		if err != nil {
			return nil, nil, err
		}
		if stored == nil {
			continue
		}
		if was, err := decode.All(a.Store.Path(p.ID), stored, decode.Options{Source: config.SourceApplied, Policy: policy.Policy{HelmHooks: true}}); err == nil {
			errs = append(errs, p.immutable(was)...)
		}
	}
	return c, errs, nil
}

// OtherPlace is the place of the effective definition of an object that is not an applied one.
type OtherPlace struct {
	// At is FILE:LINE or a URL.
	At string
	// Workload names the workload that creates the pod, for example "Deployment web"; At is where it is defined, applied or not.
	Workload string
	// Overrides reports that applied objects cannot override it.
	Overrides bool
	// Text completes a sentence that starts with "it is".
	Text string
}

// Elsewhere returns where objects are defined outside of the store, by ID. Objects that are not are omitted.
func (a *Applier) Elsewhere(ids ...manifests.ObjectID) map[manifests.ObjectID]OtherPlace {
	now, found := a.viewOf(ids), map[manifests.ObjectID]OtherPlace{}
	for _, id := range ids {
		o := now.owner(id)
		switch {
		case o.Workload != "":
			found[id] = OtherPlace{At: verdict.Place(o.At), Workload: o.Workload, Overrides: true, Text: o.String()}
		case o.At.Source != "" && o.At.Source != config.SourceApplied:
			found[id] = OtherPlace{At: verdict.Place(o.At), Overrides: a.before(o.At.Source), Text: o.String()}
		}
	}
	return found
}

// viewOf returns a view of the given objects and of all workloads.
func (a *Applier) viewOf(ids []manifests.ObjectID) view {
	d, _ := a.State.Desired()
	v := view{definitions: definitionsOf(nil, nil), removable: d.Removable, pods: map[manifests.Key]node.PodView{}}
	pods, others := map[manifests.Key]bool{}, map[manifests.ObjectID]bool{}
	for _, id := range ids {
		if id.Kind == "Pod" {
			pods[manifests.Key{Namespace: id.Namespace, Name: id.Name}] = true
		} else {
			others[id] = true
		}
	}
	if len(pods) > 0 {
		a.addPods(&v, pods, d.Pods)
	}
	for _, o := range d.Objects {
		if others[o.ID()] {
			v.objects[o.ID()] = o
		}
	}
	for _, o := range d.Workloads {
		v.objects[o.ID()] = o
	}
	return v
}

// addPods adds the desired pods with the given names, and the pods that clients see for the other names.
func (a *Applier) addPods(v *view, names map[manifests.Key]bool, desired []*manifests.Pod) {
	for _, p := range desired {
		if key := p.Key(); names[key] {
			v.documents[key] = p
		}
	}
	if len(v.documents) == len(names) {
		return
	}
	shown, _ := a.State.Pods()
	for i := range shown {
		if key := (manifests.Key{Namespace: shown[i].Pod.Namespace, Name: shown[i].Pod.Name}); names[key] {
			v.pods[key] = shown[i]
		}
	}
}

// Stored reports whether a document of an object is stored.
func (a *Applier) Stored(id manifests.ObjectID) bool {
	_, err := os.Lstat(a.Store.Path(id))
	return err == nil
}

// Fits returns the error for a change that would exceed the limits of the store. It names only namespaces of the change: its user may see no
// others.
func Fits(s *applied.Store, change applied.Change) error {
	own := change.Namespaces()
	return refuseFull(s.Fits(change), func(namespace string) bool { return own[namespace] })
}

// Commit stores a change, and returns warnings for the client. gone are the removed objects that no other source defines.
func (a *Applier) Commit(change applied.Change, c *Checked, gone []manifests.ObjectID) (warnings []string, err error) {
	var result localapi.ApplyResult
	if err := a.Change(change, &result); err != nil {
		return nil, err
	}
	a.unseen = a.visible(c, gone)
	a.State.Notify() // notes are visible immediately
	return result.Notes, nil
}

func (a *Applier) visible(c *Checked, gone []manifests.ObjectID) func(view) bool {
	shown, left := a.shownTest(c.objects), a.goneTest(gone)
	return func(v view) bool { return shown(v) && left(v) }
}

// Await waits until a change is visible; see VisibleTimeout.
func (a *Applier) Await(ctx context.Context, c *Checked, gone []manifests.ObjectID) {
	if len(c.objects)+len(gone) > 0 {
		a.await(ctx, a.visible(c, gone))
	}
}

// AwaitPod waits until the pod that clients see satisfies wanted.
func (a *Applier) AwaitPod(ctx context.Context, key manifests.Key, wanted func(*node.PodView) bool) {
	a.await(ctx, func(v view) bool {
		p, ok := v.pods[key]
		return !v.visible || !ok || wanted(&p)
	})
}

// AwaitEnd waits until clients see that the pods with these uids are terminating.
func (a *Applier) AwaitEnd(ctx context.Context, pods map[manifests.Key]types.UID) {
	if len(pods) == 0 {
		return
	}
	a.await(ctx, func(v view) bool {
		for key, uid := range pods {
			if p, ok := v.pods[key]; v.visible && ok && p.Pod.UID == uid && p.Pod.DeletionTimestamp == nil {
				return false
			}
		}
		return true
	})
}
