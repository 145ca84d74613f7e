// Package outlook logs what the documents of all sources will wait for, or do differently from a cluster.
//
// It must not judge documents itself, which is the job of package verdict. It has no goroutines.
package outlook

import (
	"log/slog"
	"maps"
	"slices"

	"monopod/internal/model"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/spaces"
	"monopod/manifests/warn"
)

// Outlook logs the warnings that `monopod validate` prints. It belongs to one goroutine.
type Outlook struct {
	log    *slog.Logger
	spaces *manifests.Spaces
	// logged are the current warnings: one that comes again after it was gone is logged again.
	logged map[string]bool
}

// New returns an Outlook; spaces are the boundaries between sources.
func New(log *slog.Logger, spaces *manifests.Spaces) *Outlook {
	return &Outlook{log: log, spaces: spaces}
}

// Publishing returns a function that publishes a desired state, and then logs what is new in it.
func Publishing(log *slog.Logger, spaces *manifests.Spaces, publish func(model.Desired)) func(model.Desired) {
	o := New(log, spaces)
	return func(d model.Desired) {
		publish(d)
		o.Look(d) // pods do not wait for it
	}
}

// Look logs what is new in a desired state. Pods that an API server binds are left out, since it has decided about them.
func (o *Outlook) Look(d model.Desired) {
	logged := map[string]bool{}
	all := bySource(d)
	delete(all, spaces.APIServer)
	for _, source := range slices.Sorted(maps.Keys(all)) {
		mine := func(_ manifests.ObjectID, at manifests.Origin) bool { return at.Source == source }
		in := warn.Input{Documents: all[source], Around: verdict.Besides(d, o.spaces, source, mine), Partial: !d.Complete()}
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
