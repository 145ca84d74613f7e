// Package outlook logs what the documents of all sources will wait for, or do differently from a cluster.
//
// It must not judge documents itself, which is the job of package verdict. Run is its goroutine; Take is called by another.
package outlook

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"monopod/internal/model"
	"monopod/internal/pause"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/spaces"
	"monopod/manifests/warn"
)

// Delay is the time from a change to the warnings about it. Judging all documents takes longer than publishing an edit, so a series of edits is
// judged once, and not while the pods of an edit are started.
const Delay = time.Second

// Outlook logs the warnings that `monopod validate` prints.
type Outlook struct {
	log    *slog.Logger
	spaces *manifests.Spaces
	node   string
	// latest has the desired state that has not been judged, if there is one.
	latest chan model.Desired
	// logged are the current warnings: one that comes again after it was gone is logged again. It is used by the goroutine of Run only.
	logged map[string]bool
}

// New returns an Outlook; spaces are the boundaries between sources, node is the name of the machine.
func New(log *slog.Logger, spaces *manifests.Spaces, node string) *Outlook {
	return &Outlook{log: log, spaces: spaces, node: node, latest: make(chan model.Desired, 1)}
}

// Take replaces the desired state to be judged. It does not wait. Only one goroutine may call it.
func (o *Outlook) Take(d model.Desired) {
	select {
	case <-o.latest:
	default:
	}
	o.latest <- d
}

// Run judges the latest desired state, Delay after it was taken or later, until ctx ends. It returns nil.
func (o *Outlook) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case d := <-o.latest:
			if !pause.For(ctx, Delay) {
				return nil
			}
			select {
			case d = <-o.latest:
			default:
			}
			o.look(d)
		}
	}
}

// look logs what is new in a desired state. Pods that an API server binds are left out, since it has decided about them.
func (o *Outlook) look(d model.Desired) {
	logged := map[string]bool{}
	all := bySource(d)
	delete(all, spaces.APIServer)
	for _, source := range slices.Sorted(maps.Keys(all)) {
		mine := func(_ manifests.ObjectID, at manifests.Origin) bool { return at.Source == source }
		in := warn.Input{Documents: all[source], Around: verdict.Besides(d, o.spaces, source, mine), Partial: !d.Complete(), Node: o.node}
		for _, w := range verdict.Warnings(in) {
			text := w.Error()
			if logged[text] = true; !o.logged[text] {
				o.log.Warn("manifest warning", "source", source, "warning", text)
			}
		}
	}
	o.logged = logged
}

// bySource returns the documents of each source.
func bySource(d model.Desired) map[string]warn.Documents {
	all := map[string]warn.Documents{}
	add := func(source string, to func(*warn.Documents)) {
		documents := all[source]
		to(&documents)
		all[source] = documents
	}
	for _, p := range d.Pods {
		add(p.Origin.Source, func(to *warn.Documents) { to.Pods = append(to.Pods, p) })
	}
	for _, o := range d.Objects {
		add(o.Origin.Source, func(to *warn.Documents) { to.Objects = append(to.Objects, o) })
	}
	for _, w := range d.Workloads {
		add(w.Origin.Source, func(to *warn.Documents) { to.Workloads = append(to.Workloads, w) })
	}
	return all
}
