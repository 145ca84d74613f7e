// Package image defines what the other packages say about images: an unpacked image, an image in a list, a pull in progress, a garbage
// collection. It must not do any I/O; package imagestore pulls, lists and removes images.
package image

import (
	"errors"
	"time"

	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"monopod/runner/ctrd/image/gc"
)

// Labels of image records in containerd.
const (
	// LabelPulled marks records that came from a registry. Its value is the name@digest that the registry reported.
	LabelPulled = "monopod.dev/repo-digest"
	// LabelVerified marks records with a checked signature. Its value names the keys and the signed digest, because a record
	// keeps its labels when it is updated to another digest, for example by the import of an archive.
	LabelVerified = "monopod.dev/verified"
	// LabelPin marks records that keep an image by its digest, under a name that is used for nothing else. Its value is the
	// instance that needs the image.
	LabelPin = "monopod.dev/pin"
	// LabelLastUsed holds UsedNow, or the time when the last container with the image was removed. After a kill of the agent
	// UsedNow remains and is still right, so nothing is written while nothing changes.
	LabelLastUsed = "monopod.dev/last-used"
	// UsedNow is the value of LabelLastUsed while a container uses the image.
	UsedNow = "now"
)

// ErrArtifact reports content that is an OCI artifact and not an image: no container can run or mount it.
var ErrArtifact = errors.New("it is an OCI artifact, not an image with a file system")

// Image is an unpacked image of this machine.
type Image struct {
	// Name is the normalised reference.
	Name string
	// ID is the digest of its config, e.g. sha256:...
	ID string
	// Digest is name@digest as reported by a registry; empty for images that only came from an archive.
	Digest string
	// Target is the digest of its manifest or index. AtDigest makes a reference of it that outlives changes of the tag.
	Target string
	// ChainID is the snapshot that its containers start from.
	ChainID string
	Config  ocispec.ImageConfig
}

// Info is an image with all its names.
type Info struct {
	// Digest is the digest of its manifest or index.
	Digest string
	// Names are its normalised references on this machine; RepoDigests are those that registries reported.
	Names, RepoDigests []string
	// Pins are the instances that keep it by its digest, Archives the files in preload directories that contain it.
	Pins, Archives []string
	// Size is its size in bytes, compressed and unpacked; Own is the part that it shares with no other image.
	Size, Own int64
	// FirstSeen is when it was pulled or imported. LastUsed is when its last container was removed; zero: never, or it is in use.
	FirstSeen, LastUsed time.Time
	// UsedNow reports whether a container used it when its use was last recorded.
	UsedNow bool
}

// Collection is a request to remove unused images.
type Collection struct {
	Policy gc.Policy
	// Needs returns the references and digests that must stay. It is called again before each removal. With an error nothing is
	// removed.
	Needs func() (refs, digests []string, err error)
	// Used returns the digests of images with containers. With an error nothing is removed.
	Used func() (map[string]bool, error)
	// Disk returns the usage of the image file system.
	Disk func() (gc.Disk, error)
	// Bytes is how many bytes to free; 0: as Policy demands.
	Bytes int64
}

// Collected is the result of a Collection.
type Collected struct {
	// Removed has the names of the removed images, one entry per image.
	Removed []string
	// Freed is how many bytes became available, Short how many are still missing.
	Freed, Short int64
	// Disk is the usage of the image file system after it.
	Disk gc.Disk
	// Next is when the next image will be old enough to be removed; zero: never.
	Next time.Time
}

// ErrNeeded is the error of a removal of an image that is in use.
var ErrNeeded = errors.New("it is needed")

// ErrNoCapacity reports an image file system without a size.
var ErrNoCapacity = errors.New("invalid capacity 0 on image filesystem")

// AtDigest returns a reference to the repository of ref at a digest. A reference that has a digest already is returned unchanged, and
// so is one that cannot be parsed, for which a pull reports the error.
func AtDigest(ref, dig string) string {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return ref
	}
	if _, ok := named.(reference.Canonical); ok {
		return ref
	}
	return reference.TrimNamed(named).String() + "@" + dig
}
