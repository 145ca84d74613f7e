// Package image finds, pulls, imports and describes container images, and fetches other artifacts from registries. It owns the image records of its
// containerd namespace: nobody else there makes any. It removes none but those that SyncPins made, and it decides nothing
// about when to try again: that is the worker's business.
//
// Goroutines: one per pull that is under way, which ends when its last waiter has gone, and those of RunPreload.
package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/runner"
	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/trust"
)

// Config of a Store.
type Config struct {
	Snapshotter string
	registry.Access
	Limits registry.Limits
	// Disk is that which images are written to. Without a Dir it is not watched.
	Disk bounded.Disk
	// Rules say which images may be used.
	Rules trust.Rules
	// PreloadDirs hold OCI or docker archives that are imported.
	PreloadDirs []string
	// OnChange, which may be nil, is called when a preload archive brought images, so that pods that wait for
	// one can try again at once.
	OnChange func()
	// OnNew, which may be nil, is called when an image was pulled or imported. It must not block.
	OnNew func()
	// OnFull, which may be nil, is called when the disk was too full for an image, with how many bytes that may take. It must not block.
	OnFull func(bytes int64)
	// Doubt, unless nil, has images looked at before they are used: see Heal.
	Doubt *Doubt
	// Blobs is the directory of containerd's content, blobs/<algorithm>/<hex> below it; empty: damaged blobs cannot be
	// replaced.
	Blobs string
	// OnDamage, which may be nil, is told what was found to be damaged, and whether it is repaired: err says why not.
	OnDamage func(image, damage string, err error)
	Log      *slog.Logger
}

// Image is an unpacked image of this machine.
type Image struct {
	// Name is the normalised reference.
	Name string
	// ID is the digest of its config, e.g. sha256:...
	ID string
	// Digest is name@digest of what a registry gave us; empty for images that only came from an archive.
	Digest string
	// Target is the digest of its manifest or index, with which AtDigest names it whatever becomes of Name.
	Target string
	// ChainID is the snapshot that containers of it start from.
	ChainID string
	Config  ocispec.ImageConfig
}

// Store finds and fetches images. Its methods may be called concurrently.
type Store struct {
	client *client.Client
	cfg    Config

	pulls   flights
	running running
	limits  registry.Turns
	heal    *healer // nil: nothing is in doubt
	// repairing is held while damaged blobs are looked for.
	repairing chan struct{}
	// back holds a value when containerd has come back and failed archives were not tried since.
	back chan struct{}

	// collecting is held while images are being collected.
	collecting sync.Mutex
	// gate is held for writing while an image is removed, and for reading while one is found to be present.
	gate sync.RWMutex

	mu sync.Mutex
	// known describes images by the digest of their target, which says all about their content.
	known map[string]*description
	// archives are the names of the images in the archives of preload directories.
	archives map[string][]string
}

// NewStore returns a Store on the client's default namespace, or that of the contexts it is called with. It
// does no I/O.
func NewStore(c *client.Client, cfg Config) *Store {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.OnNew == nil {
		cfg.OnNew = func() {}
	}
	if cfg.OnFull == nil {
		cfg.OnFull = func(int64) {}
	}
	if cfg.OnDamage == nil {
		cfg.OnDamage = func(string, string, error) {}
	}
	s := &Store{repairing: make(chan struct{}, 1), back: make(chan struct{}, 1), client: c, cfg: cfg, known: map[string]*description{}, pulls: newFlights(), limits: registry.NewTurns(cfg.Limits)}
	if cfg.Doubt != nil {
		s.heal = newHealer(s, *cfg.Doubt)
	}
	return s
}

// Ensure makes the image present and unpacked, by pull policy. Errors are *runner.StepError.
// Concurrent calls for one reference with the same logins share one pull.
func (s *Store) Ensure(ctx context.Context, ref string, policy corev1.PullPolicy) (*Image, error) {
	ctx = s.namespaced(ctx)
	name, err := registry.Normalize(ref)
	if err != nil {
		return nil, stepError(ref, runner.ReasonInvalidImageName, err)
	}
	rule, err := s.rule(name)
	if err != nil {
		return nil, stepError(ref, runner.ReasonImageNotAllowed, err)
	}
	if policy != corev1.PullAlways {
		img, err := s.present(ctx, name)
		switch {
		case err == nil:
			if err := s.vouched(ctx, img, rule); err != nil {
				return nil, policyError(ref, err)
			}
			runner.TellImageProgress(ctx, runner.ImageProgress{Image: ref, Present: true})
			return img, nil
		case !errdefs.IsNotFound(err):
			return nil, stepError(ref, runner.ReasonImageInspectError, fmt.Errorf("inspect image %q: %w", ref, err))
		case policy == corev1.PullNever:
			return nil, stepError(ref, runner.ReasonErrImageNeverPull, neverPullError(ref))
		}
	}
	began := time.Now()
	runner.TellImageProgress(ctx, runner.ImageProgress{Image: ref, Pulling: true})
	img, err := s.pulls.do(ctx, registry.FlightKey(ctx, name), func(ctx context.Context) (*Image, error) { return s.refresh(ctx, name, rule) })
	if errors.Is(err, errUnsigned) {
		return nil, policyError(ref, err)
	}
	if err != nil {
		return nil, stepError(ref, runner.ReasonErrImagePull, fmt.Errorf("pull image %q: %w", ref, err))
	}
	if took := time.Since(began); runner.TellsImageProgress(ctx) { // its size takes a walk over its manifests
		runner.TellImageProgress(ctx, runner.ImageProgress{Image: ref, Took: took, Size: s.size(ctx, name)})
	}
	return img, nil
}

// stepError is an error of Ensure with its waiting reason and its cause.
func stepError(ref, reason string, err error) error {
	return &runner.StepError{Reason: reason, Err: cause.Wrap(err, classify(ref, reason, err))}
}

// size is how large the content of an image is; 0: it is not known.
func (s *Store) size(ctx context.Context, name string) int64 {
	rec, err := s.record(ctx, name)
	if err != nil {
		return 0
	}
	n, err := client.NewImage(s.client, rec).Size(ctx)
	if err != nil {
		return 0
	}
	return n
}

// neverPullError is kubelet's sentence, which people and tools look for.
type neverPullError string

// Error implements error.
func (e neverPullError) Error() string {
	return fmt.Sprintf("Container image %q is not present with pull policy of Never", string(e))
}

// Get returns an image that is present and unpacked. An error for one that is absent matches errdefs.ErrNotFound.
func (s *Store) Get(ctx context.Context, ref string) (*Image, error) {
	name, err := registry.Normalize(ref)
	if err != nil {
		return nil, err
	}
	img, err := s.present(s.namespaced(ctx), name)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", ref, err)
	}
	return img, nil
}

// namespaced gives contexts without a containerd namespace the client's: in-process calls need it.
func (s *Store) namespaced(ctx context.Context) context.Context {
	if _, ok := namespaces.Namespace(ctx); ok {
		return ctx
	}
	return namespaces.WithNamespace(ctx, s.client.DefaultNamespace())
}

func (s *Store) namespace(ctx context.Context) string {
	ns, _ := namespaces.Namespace(ctx)
	return ns
}
