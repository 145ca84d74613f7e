// Package kept holds what a run whose pods are kept writes down for the agent that takes over: its manifests, and where they come from.
//
// It must not decide which runs are kept. It starts no goroutines.
package kept

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"monopod/internal/atomicfile"
	"monopod/internal/verdict"
	"monopod/manifests"
	"monopod/watcher"
)

// Documents returns the content of a set as manifests, one for each object.
func Documents(set watcher.Set) ([]Document, error) {
	var all []Document
	var errs []error
	add := func(v any, o manifests.Origin) {
		b, err := json.Marshal(v)
		all, errs = append(all, Document{Text: b, Place: placeOf(o)}), append(errs, err)
	}
	for _, o := range slices.Concat(set.Objects, set.Workloads) {
		add(o.Object, o.Origin)
	}
	for _, p := range set.Pods {
		add(p.Object, p.Origin)
	}
	return all, errors.Join(errs...)
}

// Document is a manifest of a run, and the place where its author wrote it.
type Document struct {
	Text  []byte
	Place string
}

// placeOf returns the place of a manifest as readers in any directory find it.
func placeOf(o manifests.Origin) string {
	if _, err := os.Stat(o.File); err == nil { // and not the standard input
		if file, err := filepath.Abs(o.File); err == nil {
			o.File = file
		}
	}
	return verdict.Place(o)
}

// Copies reads the file that marks a kept run, and returns the places of which its manifests are copies. Other daemons, and runs that an
// earlier version has kept, have none.
func Copies(file string, log *slog.Logger) map[string]string {
	text, err := atomicfile.Read(file, atomicfile.MaxState)
	if err != nil || len(text) == 0 {
		return nil
	}
	var all map[string]string
	if err := json.Unmarshal(text, &all); err != nil {
		log.Warn("the places of the manifests of this run are unknown", "err", err)
	}
	return all
}
