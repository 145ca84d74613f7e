// Package apply checks the objects that clients apply or delete against all other sources, and stores them.
//
// It must not start pods: the watcher reads the stored objects. It starts no goroutines.
package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/state"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
	"monopod/node"
	"monopod/node/localapi"
	"monopod/runner/rollout"
	"monopod/watcher/applied"
)

// startTimeout bounds how long a request waits until a starting daemon has read its sources.
const startTimeout = 10 * time.Second

// defaultVisibleTimeout bounds how long an answer waits until clients can see the change.
const defaultVisibleTimeout = 2 * time.Second

// Applier stores the objects that clients apply. It implements node.Applier.
type Applier struct {
	Store  *applied.Store
	State  *state.Store
	Policy policy.Policy
	// Order lists the sources by precedence. Applied objects cannot override those before config.SourceApplied.
	Order []string
	Log   *slog.Logger
	// Node is the name of the machine.
	Node string
	// VisibleTimeout bounds how long an answer waits until clients can see the change; 0: 2 seconds.
	VisibleTimeout time.Duration

	// mu is held from the first read of the stored objects to the end of a change.
	mu sync.Mutex
	// unseen reports whether the last change is visible; nil if it is.
	unseen func(view) bool
}

// refusal returns an API error with all errors; nil: there are none.
func refusal(code int, reason metav1.StatusReason, errs []*manifests.Error) error {
	if len(errs) == 0 {
		return nil
	}
	var lines []string
	for _, e := range errs {
		lines = append(lines, e.Error())
	}
	return node.Refusal(code, reason, lines)
}

// Apply implements node.Applier.
func (a *Applier) Apply(ctx context.Context, r localapi.ApplyRequest) (localapi.ApplyResult, error) {
	if err := a.ready(ctx); err != nil {
		return localapi.ApplyResult{}, err
	}
	result, objects, err := a.apply(r)
	if err == nil && !r.DryRun {
		a.await(ctx, a.shownTest(objects))
		a.view().addRollbacks(result)
	}
	return result, err
}

// apply checks the objects and stores them.
func (a *Applier) apply(r localapi.ApplyRequest) (localapi.ApplyResult, []*pushed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	content := a.read(r.Files)
	objects := content.objects
	if err := refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, content.errs); err != nil {
		return localapi.ApplyResult{}, nil, err
	}
	if err := a.compare(objects); err != nil {
		return localapi.ApplyResult{}, nil, err
	}
	if err := refusal(http.StatusConflict, metav1.StatusReasonConflict, a.owned(a.view(), objects)); err != nil {
		return localapi.ApplyResult{}, nil, err
	}
	result := localapi.ApplyResult{Objects: []localapi.AppliedObject{}, Notes: content.notes, Warnings: content.warnings}
	change := applied.Change{Put: map[manifests.ObjectID][]byte{}, Notes: map[manifests.ObjectID]*applied.Note{}}
	for _, p := range objects {
		o := localapi.AppliedObject{ObjectRef: refOf(p.ID), Verdict: p.Verdict, Warning: p.Warning}
		for _, pod := range p.Pods() {
			o.Pods = append(o.Pods, localapi.AppliedPod{Namespace: pod.Object.Namespace, Name: pod.Object.Name, Manifest: rollout.Hash(pod.Object)})
		}
		result.Objects = append(result.Objects, o)
		if p.Verdict != localapi.Unchanged {
			change.Put[p.ID], change.Notes[p.ID] = p.Canonical, p.Note
		}
	}
	if r.DryRun {
		return result, objects, refuseFull(a.Store.Fits(change), nil)
	}
	if err := a.Change(change, &result); err != nil {
		return localapi.ApplyResult{}, nil, err
	}
	a.unseen = a.shownTest(objects)
	a.logChange("applied", result)
	return result, objects, nil
}

// Change stores a change. If it is stored but not finished, the result has a note about it: it is finished later.
func (a *Applier) Change(c applied.Change, result *localapi.ApplyResult) error {
	err := a.Store.Change(c)
	if unfinished, ok := errors.AsType[*applied.UnfinishedError](err); ok {
		a.Log.Error("a change of applied objects is incomplete", "err", err)
		result.Notes = append(result.Notes, unfinished.Error())
		return nil
	}
	return refuseFull(err, nil)
}

// refuseFull turns a FullError into the error of a response. If given, in selects the namespaces that it may name.
func refuseFull(err error, in func(namespace string) bool) error {
	full, ok := errors.AsType[*applied.FullError](err)
	if !ok {
		return err
	}
	text := full.Error()
	if largest := full.Largest(in); largest != "" {
		text += "; the largest are " + largest
	}
	return node.Refusal(http.StatusInsufficientStorage, "InsufficientStorage", []string{text})
}

// Delete implements node.Applier.
func (a *Applier) Delete(ctx context.Context, r localapi.DeleteRequest) (localapi.ApplyResult, error) {
	ids, err := deletedIDs(r)
	if err != nil {
		return localapi.ApplyResult{}, err
	}
	if err := a.ready(ctx); err != nil {
		return localapi.ApplyResult{}, err
	}
	result, removed, err := a.remove(ids, r.DryRun)
	if err == nil && !r.DryRun {
		a.await(ctx, a.goneTest(removed))
	}
	return result, err
}

// remove checks the ids and removes their objects, which it returns.
func (a *Applier) remove(ids []manifests.ObjectID, dryRun bool) (localapi.ApplyResult, []manifests.ObjectID, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	result := localapi.ApplyResult{Objects: []localapi.AppliedObject{}}
	var change applied.Change
	var lines []string
	now := a.view()
	for _, id := range ids {
		o := localapi.AppliedObject{ObjectRef: refOf(id), Verdict: localapi.NotFound}
		stored, err := a.Store.Get(id)
		if err != nil {
			return localapi.ApplyResult{}, nil, err
		}
		owner := now.owner(id)
		elsewhere := owner.At.Source != "" && (owner.At.Source != config.SourceApplied || owner.Workload != "")
		switch {
		case stored != nil:
			o.Verdict = localapi.Deleted
			change.Remove = append(change.Remove, id)
			if elsewhere {
				o.Warning = "continues to run: it is " + owner.String() + " too"
			} else {
				o.Pods = now.podsOf(id)
			}
		case elsewhere:
			lines = append(lines, fmt.Sprintf("%s is %s; remove it there", id, owner))
		}
		result.Objects = append(result.Objects, o)
	}
	if len(lines) > 0 {
		return localapi.ApplyResult{}, nil, node.Refusal(http.StatusConflict, metav1.StatusReasonConflict, lines)
	}
	if dryRun {
		return result, nil, nil
	}
	if err := a.Change(change, &result); err != nil {
		return localapi.ApplyResult{}, nil, err
	}
	a.unseen = a.goneTest(change.Remove)
	a.logChange("deleted applied objects", result)
	return result, change.Remove, nil
}

// ready waits until the other sources have been read: only then it is known which objects must not be overridden.
func (a *Applier) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	changed, stop := a.State.Subscribe()
	defer stop()
	for _, ok := a.State.Desired(); !ok; _, ok = a.State.Desired() {
		select {
		case <-ctx.Done():
			return node.Refusal(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, []string{"monopod is starting and has not read its manifests yet; try again"})
		case <-changed:
		}
	}
	return nil
}

// logChange logs the objects that have changed.
func (a *Applier) logChange(what string, r localapi.ApplyResult) {
	var names []string
	for _, o := range r.Objects {
		if o.Verdict != localapi.Unchanged && o.Verdict != localapi.NotFound {
			names = append(names, string(o.Verdict)+" "+o.String())
		}
	}
	if len(names) > 0 {
		a.Log.Info(what, "objects", names)
	}
}

// await waits until the change is visible, so that the next request of the client sees it. The change is stored in any case.
func (a *Applier) await(ctx context.Context, seen func(view) bool) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.VisibleTimeout, defaultVisibleTimeout))
	defer cancel()
	changed, stop := a.State.Subscribe()
	defer stop()
	for !seen(a.view()) {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// shownTest returns a test whether objects are visible, or another client has changed them.
func (a *Applier) shownTest(objects []*pushed) func(view) bool {
	return func(v view) bool {
		return !slices.ContainsFunc(objects, func(p *pushed) bool { return !v.shows(p) && a.stores(p.ID, p.Canonical) })
	}
}

// goneTest returns a test whether objects are no longer visible, or another client has stored them.
func (a *Applier) goneTest(removed []manifests.ObjectID) func(view) bool {
	return func(v view) bool {
		return !slices.ContainsFunc(removed, func(id manifests.ObjectID) bool { return !v.lacks(id) && a.stores(id, nil) })
	}
}

// stores reports whether a document is still the stored one; nil: whether none is stored. Another client may have changed it.
func (a *Applier) stores(id manifests.ObjectID, document []byte) bool {
	stored, err := a.Store.Get(id)
	return err != nil || slices.Equal(stored, document)
}

// compare sets the verdicts, and refuses changes of immutable objects.
func (a *Applier) compare(objects []*pushed) error {
	var errs []*manifests.Error
	for _, p := range objects {
		stored, err := a.Store.Get(p.ID)
		if err != nil {
			return err
		}
		switch {
		case stored == nil:
			p.Verdict = localapi.Created
		case slices.Equal(stored, p.Canonical):
			p.Verdict = localapi.Unchanged
		default:
			p.Verdict = localapi.Configured
			was, err := decode.All(a.Store.Path(p.ID), stored, decode.Options{Source: config.SourceApplied, Policy: policy.Policy{HelmHooks: true}})
			if err != nil {
				continue // a stored object that can no longer be decoded may be replaced
			}
			applied.Give(p.Note, was)
			if p.Note != nil && p.same(was) { // the API also writes defaults
				p.Verdict = localapi.Unchanged
				continue
			}
			p.Note = p.raised(was)
			errs = append(errs, p.immutable(was)...)
		}
	}
	return refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, errs)
}

func (p *pushed) immutable(was *manifests.Content) []*manifests.Error {
	if p.Object == nil {
		return nil
	}
	errs := manifests.ImmutableEdits(was.Objects, []*manifests.Object{p.Object})
	for _, e := range errs {
		e.File, e.Line = p.File, p.Line
		e.Hint = "rename the changed one, or delete it first"
	}
	return errs
}

// owned refuses objects that a source of higher precedence defines differently. An equal object may be applied: its
// applied definition becomes effective when that source removes it.
func (a *Applier) owned(now view, objects []*pushed) []*manifests.Error {
	var errs []*manifests.Error
	for _, p := range objects {
		owner := now.owner(p.ID)
		if owner.At.Source == "" || !a.before(owner.At.Source) && owner.Workload == "" {
			continue
		}
		switch {
		case owner.Workload != "":
			errs = append(errs, p.Refuse("has the name of "+owner.String(), "rename it"))
		case !now.same(p):
			errs = append(errs, p.Refuse("is "+owner.String()+" already, which cannot be overridden", "change it there, or remove it there first"))
		default:
			p.Warning = "is " + owner.String() + " too, which takes precedence until it is removed there"
		}
	}
	return errs
}

// before reports whether a source has precedence over applied objects.
func (a *Applier) before(source string) bool {
	at := slices.Index(a.Order, source)
	return at >= 0 && at < slices.Index(a.Order, config.SourceApplied)
}

// deletedIDs returns the ids of the objects that a request names.
func deletedIDs(r localapi.DeleteRequest) ([]manifests.ObjectID, error) {
	var ids []manifests.ObjectID
	add := func(id manifests.ObjectID) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, o := range r.Objects {
		add(manifests.ObjectID{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
	}
	for _, id := range ids {
		if strings.ContainsAny(id.Kind+id.Namespace+id.Name, "/\x00") {
			return nil, node.Refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest, []string{fmt.Sprintf("%q is not a valid object name", id)})
		}
	}
	var errs []error
	for _, f := range r.Files {
		docs, err := decode.Split(f.Name, f.Content)
		errs = append(errs, err)
		for _, d := range docs {
			add(d.ID)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, manifests.Errors(err))
	}
	return ids, nil
}

func refOf(id manifests.ObjectID) localapi.ObjectRef {
	return localapi.ObjectRef{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}
}
