// Package sharing tells which objects pods refer to and must not see, and what in the configuration would share them.
//
// It is pure. It must not decide who sees what: package spaces does.
package sharing

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/manifests"
	"monopod/manifests/spaces"
)

// Hidden is an object that a pod refers to and that its source must not see.
type Hidden struct {
	Pod manifests.Key
	// Reader is the source of the pod, or of its claim; Owner is that of the object.
	Reader, Owner string
	Object        manifests.ObjectID
}

// String returns the reference on one line.
func (h Hidden) String() string {
	return fmt.Sprintf("pod %s of %s: %s of %s", h.Pod, h.Reader, h.Object, h.Owner)
}

// List returns all references of pods to objects that their sources must not see, in a stable order. Those to a PersistentVolume count
// if the claim or the volume names the other.
func List(pods []*manifests.Pod, objects *manifests.Objects) []Hidden {
	var all []Hidden
	for _, p := range pods {
		refs := manifests.Resolve(p.Object, p.Origin.Source, objects)
		if refs == nil {
			continue
		}
		for id, owner := range refs.Hidden {
			all = append(all, Hidden{Pod: p.Key(), Reader: refs.Reader, Owner: owner, Object: id})
		}
		for name, c := range refs.Claims {
			storage := refs.Storage(name)
			for id, owner := range storage.HiddenStorage {
				if id.Kind == "PersistentVolume" && bound(c, objects.PersistentVolume(id.Name)) {
					all = append(all, Hidden{Pod: p.Key(), Reader: storage.Reader, Owner: owner, Object: id})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Hidden) int {
		return cmp.Or(a.Pod.Compare(b.Pod), strings.Compare(a.Object.String(), b.Object.String()))
	})
	return all
}

// bound reports whether a claim names a volume, or the volume the claim.
func bound(c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	if c.Spec.VolumeName == v.Name {
		return true
	}
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == c.Name && cmp.Or(ref.Namespace, corev1.NamespaceDefault) == c.Namespace
}

// Value returns the value of sharing, in YAML, that adds what is hidden to what is shared.
func Value(hidden []Hidden, shared map[string][]string) string {
	lists := map[string][]string{}
	for reader, list := range shared {
		lists[reader] = slices.Clone(list)
	}
	for _, h := range hidden {
		if entry := spaces.Entry(h.Owner, h.Object.Namespace); !slices.Contains(lists[h.Reader], entry) {
			lists[h.Reader] = append(lists[h.Reader], entry)
		}
	}
	var out []string
	for _, reader := range slices.Sorted(maps.Keys(lists)) {
		out = append(out, fmt.Sprintf("%s: [%s]", reader, strings.Join(lists[reader], ", ")))
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// Refused returns the error of an object that a pod refers to and that its source must not see; nil if it is not hidden.
func Refused(refs *manifests.Refs, id manifests.ObjectID) error {
	owner := refs.Owner(id)
	if owner == "" {
		return nil
	}
	return cause.Wrap(
		fmt.Errorf("%s is not shared: it belongs to source %s, and pods of source %s may use it only with sharing: {%s: [%s]} in the configuration",
			id, owner, refs.Reader, refs.Reader, spaces.Entry(owner, id.Namespace)),
		cause.Cause{
			Kind: cause.NotShared, Owner: owner, Reader: refs.Reader,
			Object: cause.Object{Kind: id.Kind, Namespace: id.Namespace, Name: id.Name},
		},
	)
}

// Warning lists the hidden objects once, when all sources have been read. It belongs to one goroutine.
type Warning struct {
	Log *slog.Logger
	// Sharing is the value in the configuration.
	Sharing map[string][]string
	done    bool
}

// Follow lists what is hidden from the pods of a desired state.
func (w *Warning) Follow(d model.Desired, objects *manifests.Objects) {
	if w.done || d.Incomplete || !d.Answered() {
		return
	}
	w.done = true
	hidden := List(d.Pods, objects)
	if len(hidden) == 0 {
		return
	}
	var all []string
	for _, h := range hidden {
		all = append(all, h.String())
	}
	w.Log.Warn("pods refer to objects of other sources, which they no longer get; running pods keep what they have. To share them, set sharing in the configuration",
		"sharing", Value(hidden, w.Sharing), "references", strings.Join(all, ", "))
}
