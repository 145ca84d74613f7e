// Package needs knows which pods, revisions and archives need an image.
//
// It must not remove or pull images. It has no goroutines.
package needs

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/internal/regular"
	"monopod/manifests"
	"monopod/manifests/document"
	"monopod/node/localapi"
)

// Kinds of localapi.ImageNeed.
const (
	NeedManifest  = "Manifest"
	NeedRevision  = "Revision"
	NeedPreload   = "Preload"
	NeedUndecided = "Undecided"
)

// Images maps images to the objects that need them.
type Images struct {
	// Refs are references, digests are of manifests or indexes.
	Refs, Digests map[string][]localapi.ImageNeed
}

func (n *Images) ref(ref string, by localapi.ImageNeed) {
	if ref != "" && !slices.Contains(n.Refs[ref], by) {
		n.Refs[ref] = append(n.Refs[ref], by)
	}
}

// Digest adds an image by the digest of its manifest or index.
func (n *Images) Digest(dig string, by localapi.ImageNeed) {
	if dig != "" && !slices.Contains(n.Digests[dig], by) {
		n.Digests[dig] = append(n.Digests[dig], by)
	}
}

// Spec adds the images of a pod, or of the pods of a workload.
func (n *Images) Spec(spec *corev1.PodSpec, by string) {
	need := localapi.ImageNeed{Kind: NeedManifest, By: by}
	for c := range manifests.AllContainers(spec) {
		n.ref(c.Image, need)
	}
	for i := range spec.Volumes {
		if v := spec.Volumes[i].Image; v != nil {
			n.ref(v.Reference, need)
		}
	}
}

// ImagesOf are the references in a pod, each once.
func ImagesOf(spec *corev1.PodSpec) []string {
	n := Images{Refs: map[string][]localapi.ImageNeed{}}
	n.Spec(spec, "")
	return slices.Sorted(maps.Keys(n.Refs))
}

// imageField finds the images in a document that may not be one.
var imageField = regexp.MustCompile(`["']?\b(?:image|reference)["']?:[ \t]*["']?([^\s"',}\]]+)`)

// Refused adds the images of a refused file: they are needed as soon as it is fixed.
func (n *Images) Refused(r model.Input) {
	if r.State != model.InputRefused || !filepath.IsAbs(r.Input) {
		return
	}
	b, err := regular.ReadFile(r.Input, document.MaxSize)
	if err != nil {
		return
	}
	for _, found := range imageField.FindAllSubmatch(b, -1) {
		n.ref(string(found[1]), localapi.ImageNeed{Kind: NeedManifest, By: r.Input})
	}
}
