package apply

import (
	"fmt"
	"slices"

	"monopod/internal/config"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/warn"
	"monopod/node/localapi"
	"monopod/watcher/applied"
)

// content is what files contain.
type content struct {
	objects []*pushed
	// notes are about documents without effect, warnings about what the pods will wait for.
	notes, warnings []string
	errs            []*manifests.Error
}

// read decodes and validates all files as one set.
func (a *Applier) read(files []localapi.ManifestFile) (c content) {
	all := judged(files, decode.Options{Source: config.SourceApplied, Policy: a.Policy})
	if c.objects, c.notes, c.errs = a.collect(all, files, a.noteOf); len(c.errs) > 0 {
		return c
	}
	replaced := map[manifests.ObjectID]bool{}
	for _, p := range c.objects {
		replaced[p.ID] = true
	}
	d, _ := a.State.Desired()
	own := func(id manifests.ObjectID, _ manifests.Origin) bool { return replaced[id] }
	verdict.Outlook(all, warn.Input{Around: verdict.Besides(d, a.State.Spaces, config.SourceApplied, own), Node: a.Node})
	for _, v := range all {
		c.warnings = append(c.warnings, v.WarningLines()...)
	}
	return c
}

// judged returns the verdicts on all files as one set.
func judged(files []localapi.ManifestFile, o decode.Options) (all []*verdict.Verdict) {
	for _, f := range files {
		all = append(all, verdict.Judge(f.Name, f.Content, nil, o))
	}
	verdict.Conflicts(all)
	return all
}

// collect returns the objects of files as they will be stored.
func (a *Applier) collect(all []*verdict.Verdict, files []localapi.ManifestFile, noteOf func(manifests.ObjectID) *applied.Note) (objects []*pushed, notes []string, errs []*manifests.Error) {
	for i, f := range files {
		v := all[i]
		if len(v.Errors) > 0 {
			continue
		}
		notes = append(notes, v.Notes...)
		docs, err := decode.Split(f.Name, f.Content)
		if err != nil {
			v.Errors = append(v.Errors, manifests.Errors(err)...)
			continue
		}
		docs = slices.DeleteFunc(docs, func(d decode.Document) bool { return v.Owned[d.ID] })
		found, err := a.match(f.Name, docs, noteOf)
		if err != nil {
			v.Errors = append(v.Errors, &manifests.Error{File: f.Name, Msg: err.Error()})
		}
		objects = append(objects, found...)
	}
	for _, v := range all {
		errs = append(errs, v.Errors...)
	}
	return objects, notes, append(errs, definedTwice(objects)...)
}

// noteOf returns the note to store with an object: the existing one is kept.
func (a *Applier) noteOf(id manifests.ObjectID) *applied.Note { return a.Store.Note(id) }

// match decodes each document as the watcher will once it is stored with its note.
func (a *Applier) match(file string, docs []decode.Document, noteOf func(manifests.ObjectID) *applied.Note) ([]*pushed, error) {
	var out []*pushed
	for _, d := range docs {
		note := noteOf(d.ID)
		c, err := decode.All(a.Store.Path(d.ID), d.Canonical, decode.Options{Source: config.SourceApplied, Policy: applied.Policy(a.Policy, note)})
		if err != nil {
			return nil, fmt.Errorf("this document would change when stored; please report this with the file: %w", err)
		}
		applied.Give(note, c)
		p := &pushed{Document: d, File: file, Note: note}
		switch {
		case len(c.Pods) == 1:
			p.Pod = c.Pods[0]
		case len(c.Objects) == 1:
			p.Object = c.Objects[0]
		case len(c.Workloads) == 1:
			p.Object, p.Workload = c.Workloads[0], true
		default:
			return nil, fmt.Errorf("%s would be lost when stored; please report this with the file", d.ID)
		}
		out = append(out, p)
	}
	return out, nil
}

// definedTwice returns errors about objects that two files define. For pods, verdict.Conflicts does that.
func definedTwice(objects []*pushed) []*manifests.Error {
	first := map[manifests.ObjectID]*pushed{}
	var errs []*manifests.Error
	for _, p := range objects {
		if was := first[p.ID]; was != nil && p.Pod == nil {
			errs = append(errs, p.Refuse("is already defined at "+verdict.Place(was.Origin()), "rename or remove one of them"))
			continue
		}
		first[p.ID] = p
	}
	return errs
}
