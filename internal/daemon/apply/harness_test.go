package apply

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"monopod/internal/boottime"
	"monopod/internal/config"
	"monopod/internal/daemon/state"
	"monopod/internal/daemontest"
	"monopod/internal/model"
	"monopod/internal/testfiles"
	"monopod/manifests/decode"
	"monopod/node/localapi"
	"monopod/runner/rollout"
	"monopod/watcher/applied"
)

const (
	settings   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: %s}\n"
	fixed      = settings + "immutable: true\n"
	deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: %s\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n" +
		"    spec: {containers: [{name: c, image: example.com/app:1}]}\n"
	statefulSet = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  replicas: %s\n  serviceName: db\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n" +
		"    spec: {containers: [{name: c, image: example.com/app:1}]}\n"
	// last is a source of lower precedence than applied objects.
	last = "last"
)

// newApplier returns an Applier of a daemon whose runtime is not open, and whose sources desire d. Its disk does not sync, which takes time.
func newApplier(t *testing.T, d model.Desired) *Applier {
	t.Helper()
	a := newApplierIn(t.TempDir(), d)
	a.VisibleTimeout = 1 // what is applied is not published
	return a
}

// newApplierIn returns one that stores in a directory, and waits until clients can see what it has stored.
func newApplierIn(dir string, d model.Desired) *Applier {
	changes := &state.Changes{}
	s := state.New(changes, rollout.New(rollout.Config{Log: slog.New(slog.DiscardHandler), Notify: changes.Notify, Clock: boottime.Now}))
	s.Blind(errors.New("no runtime"))
	s.Publish(d)
	return &Applier{
		Store: applied.NewStoreOn(applied.Disk{Write: os.WriteFile, Replace: os.Rename}, dir), State: s, Order: []string{config.SourceFile, config.SourceApplied, last}, Log: slog.New(slog.DiscardHandler),
	}
}

// add adds the documents of a file to a desired state.
func add(t *testing.T, d model.Desired, source, file, text string) model.Desired {
	t.Helper()
	c, err := decode.All(file, []byte(text), decode.Options{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	d.Pods, d.Objects, d.Workloads = append(d.Pods, c.Pods...), append(d.Objects, c.Objects...), append(d.Workloads, c.Workloads...)
	d.Reported = map[string]bool{config.SourceFile: true, config.SourceApplied: true, last: true}
	return d
}

// overriding returns a desired state with what was applied in another one, which it overrides.
func overriding(d, by model.Desired) model.Desired {
	d.Overridden = model.Overridden{Pods: by.Pods, Objects: slices.Concat(by.Objects, by.Workloads)}
	return d
}

// nothing is the desired state of sources that have been read and are empty.
func nothing(t *testing.T) model.Desired {
	t.Helper()
	return add(t, model.Desired{}, config.SourceFile, "/m/none.yaml", "# nothing\n")
}

// files returns the files of a request: a.yaml, b.yaml, ...
func files(texts ...string) (all []localapi.ManifestFile) {
	for i, text := range texts {
		all = append(all, localapi.ManifestFile{Name: string(rune('a'+i)) + ".yaml", Content: []byte(text)})
	}
	return all
}

// webPod is the manifest of the pod web that prints a word.
func webPod(word string) string { return daemontest.PodYAML("web", "echo "+word) }

// told returns what a result says of each object.
func told(r localapi.ApplyResult) string {
	var lines []string
	for _, o := range r.Objects {
		line := fmt.Sprintf("%s %s", o.ObjectRef, o.Verdict)
		for _, p := range o.Pods {
			line += " " + p.Name
		}
		if o.Warning != "" {
			line += " (" + o.Warning + ")"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// stored returns which of some objects are stored, by their kinds.
func stored(t *testing.T, a *Applier, ids ...localapi.ObjectRef) string {
	t.Helper()
	var kinds []string
	for _, id := range ids {
		doc, err := a.Store.Get(idOf(id))
		if err != nil {
			t.Fatal(err)
		}
		if doc != nil {
			kinds = append(kinds, id.Kind)
		}
	}
	slices.Sort(kinds)
	return strings.Join(kinds, " ")
}

// put stores documents by the ids of their objects, without syncing.
func put(t *testing.T, a *Applier, documents map[localapi.ObjectRef]string) {
	t.Helper()
	for id, document := range documents {
		testfiles.Write(t, a.Store.Path(idOf(id)), document)
	}
}

// canonical returns the document that is stored for a manifest.
func canonical(t *testing.T, text string) string {
	t.Helper()
	docs, err := decode.Split("a.yaml", []byte(text))
	if err != nil || len(docs) != 1 {
		t.Fatal(docs, err)
	}
	return string(docs[0].Canonical)
}
