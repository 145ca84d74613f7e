// Package needs knows which pods, revisions and archives need an image, and declares what the daemon requires from the images of a runtime.
//
// It must not remove or pull images. It has no goroutines.
package needs

import (
	"context"
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
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
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

// ImageService reads and manages the images of a runtime.
type ImageService interface {
	// List returns all images with the pods that use them.
	List(ctx context.Context) ([]ctrd.ImageUse, error)
	// Pulls returns the pulls in progress of one image; of all if ref is empty.
	Pulls(ctx context.Context, ref string) ([]model.Pull, error)
	// Pull makes an image present.
	Pull(ctx context.Context, ref string, policy corev1.PullPolicy) (*image.Image, error)
	// Targets returns the references by the digests that they resolve to.
	Targets(ctx context.Context, refs []string) (map[string][]string, error)
	// Collect removes unused images.
	Collect(ctx context.Context, c image.Collection) (image.Collected, error)
	// Remove removes an image by its digest; with forced, even if a container uses it.
	Remove(ctx context.Context, digest string, forced bool) error
	// Disk returns the state of the image file system.
	Disk() (gc.Disk, error)
	// Changed receives a value when images were added or fewer are in use.
	Changed() <-chan struct{}
	// Wanted returns the size of an image for which the disk was too full since the last call; 0 if there was none.
	Wanted() int64
}
