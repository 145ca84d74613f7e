// Package imagestore makes images present by pull policy and image rules, and assembles the parts that do the work: local, pull, repair,
// preload and inventory. It owns the records that pin images by digest; it must not retry, which is up to its callers.
package imagestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/runner"
	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/inventory"
	"monopod/runner/ctrd/image/local"
	"monopod/runner/ctrd/image/preload"
	"monopod/runner/ctrd/image/pull"
	"monopod/runner/ctrd/image/registry"
	"monopod/runner/ctrd/image/repair"
	"monopod/runner/ctrd/image/signature"
	"monopod/runner/ctrd/image/trust"
)

// Config of a Store. Functions may be nil.
type Config struct {
	Snapshotter string
	registry.Access
	Limits registry.Limits
	// Disk is watched while images are written. Without a Dir it is not.
	Disk bounded.Disk
	// Rules decide which images may be used.
	Rules trust.Rules
	// PreloadDirs have OCI or docker archives to import.
	PreloadDirs []string
	// OnChange is called when a preload archive was imported, so that pods that wait for an image can try again at once.
	OnChange func()
	// OnNew is called when an image was pulled or imported. It must not block.
	OnNew func()
	// OnFull is called when the disk was too full for an image, with the number of bytes that it may need. It must not block.
	OnFull func(bytes int64)
	// Doubt makes images be checked before they are used, see package repair. Nil: they are not.
	Doubt *repair.Doubt
	// ContentDir is the directory of containerd's content store, which has blobs/<algorithm>/<hex>. Empty: damaged blobs cannot be
	// replaced.
	ContentDir string
	// OnDamage is called for each damage. err is why it could not be repaired, or nil.
	OnDamage func(image, damage string, err error)
	Log      *slog.Logger
}

// Store makes images present. It is safe for concurrent use.
type Store struct {
	Local     *local.Store
	Repair    *repair.Repairer
	Puller    *pull.Puller
	Preload   *preload.Preloader
	Inventory *inventory.Inventory

	client   *client.Client
	registry *registry.Client
	rules    trust.Rules
}

// New returns a Store on the client's default namespace, or on that of the contexts it is called with. It does no I/O.
func New(c *client.Client, cfg Config) *Store {
	cfg.setDefaults()
	s := &Store{client: c, rules: cfg.Rules, registry: registry.NewClient(cfg.Access, cfg.Limits)}
	s.registry.Misled = func(name string, err *registry.MirrorError) {
		cfg.Log.Warn("the content of a mirror cannot be used; the registry was asked instead", "image", name, "mirror", err.Hosts, "err", err.Mirror)
	}
	s.Local = local.New(local.Config{Client: c, Snapshotter: cfg.Snapshotter, Disk: cfg.Disk, OnFull: cfg.OnFull, Log: cfg.Log})
	s.Repair = repair.New(repair.Config{
		Local: s.Local, Registry: s.registry, ArchiveDirs: cfg.PreloadDirs, ContentDir: cfg.ContentDir, Doubt: cfg.Doubt, OnDamage: cfg.OnDamage, Log: cfg.Log,
	})
	s.Puller = pull.New(pull.Config{Local: s.Local, Registry: s.registry, Repair: s.Repair, OnNew: cfg.OnNew, Log: cfg.Log})
	s.Inventory = inventory.New(inventory.Config{Local: s.Local, DropPartial: s.Puller.DropPartial, Log: cfg.Log})
	s.Preload = preload.New(preload.Config{
		Local: s.Local, Repair: s.Repair, Dirs: cfg.PreloadDirs, Record: s.Inventory.RecordArchive, OnImport: func() { cfg.OnNew(); cfg.OnChange() }, Log: cfg.Log,
	})
	return s
}

func (c *Config) setDefaults() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	if c.OnNew == nil {
		c.OnNew = func() {}
	}
	if c.OnFull == nil {
		c.OnFull = func(int64) {}
	}
	if c.OnDamage == nil {
		c.OnDamage = func(string, string, error) {}
	}
}

// Ensure makes the image present and unpacked, by pull policy. Errors are *runner.StepError. Concurrent calls for one reference with the
// same logins share one pull.
func (s *Store) Ensure(ctx context.Context, ref string, policy corev1.PullPolicy) (*image.Image, error) {
	ctx = s.Local.Namespaced(ctx)
	name, err := registry.Normalize(ref)
	if err != nil {
		return nil, stepError(ref, runner.ReasonInvalidImageName, err)
	}
	rule, err := s.signatureRule(name)
	if err != nil {
		return nil, stepError(ref, runner.ReasonImageNotAllowed, err)
	}
	if policy != corev1.PullAlways {
		img, err := s.Repair.Present(ctx, name)
		switch {
		case err == nil:
			if err := s.checkSignature(ctx, img, rule); err != nil {
				return nil, signatureError(ref, err)
			}
			runner.ReportImageProgress(ctx, runner.ImageProgress{Image: ref, Present: true})
			return img, nil
		case !errdefs.IsNotFound(err):
			return nil, stepError(ref, runner.ReasonImageInspectError, fmt.Errorf("inspect image %q: %w", ref, err))
		case policy == corev1.PullNever:
			return nil, stepError(ref, runner.ReasonErrImageNeverPull, neverPullError(ref))
		}
	}
	began := time.Now()
	runner.ReportImageProgress(ctx, runner.ImageProgress{Image: ref, Pulling: true})
	img, err := s.Puller.Pull(ctx, name, rule)
	if errors.Is(err, signature.ErrInvalid) {
		return nil, signatureError(ref, err)
	}
	if err != nil {
		return nil, stepError(ref, runner.ReasonErrImagePull, fmt.Errorf("pull image %q: %w", ref, err))
	}
	if took := time.Since(began); runner.WantsImageProgress(ctx) { // computing the size reads all manifests
		runner.ReportImageProgress(ctx, runner.ImageProgress{Image: ref, Took: took, Size: s.Local.Size(ctx, name)})
	}
	return img, nil
}

// Get returns an image that is present and unpacked. The error for a missing one matches errdefs.ErrNotFound.
func (s *Store) Get(ctx context.Context, ref string) (*image.Image, error) {
	name, err := registry.Normalize(ref)
	if err != nil {
		return nil, err
	}
	img, err := s.Repair.Present(s.Local.Namespaced(ctx), name)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", ref, err)
	}
	return img, nil
}

// signatureRule returns the rule that demands a signature of an image, or nil. An error means that the image must not be used.
func (s *Store) signatureRule(name string) (*trust.Rule, error) {
	r, err := s.rules.For(name)
	if err != nil {
		return nil, err
	}
	if r == nil || !r.Signed() {
		return nil, nil //nolint:nilnil // no signature is needed
	}
	return r, nil
}

// checkSignature checks the signature of a present image. The result is kept as a label, so the registry is contacted only once for the
// same keys and digest.
func (s *Store) checkSignature(ctx context.Context, img *image.Image, rule *trust.Rule) error {
	if rule == nil {
		return nil
	}
	verified, err := signature.Label(rule, img.Target)
	if err != nil {
		return err
	}
	store := s.client.ImageService()
	same, err := store.List(ctx, fmt.Sprintf("target.digest==%q", img.Target))
	if err != nil {
		return err
	}
	archives := s.Inventory.ArchivesByName()
	for i := range same {
		labels := same[i].Labels
		// An image that was pulled later is not the one that the archive of that name contains.
		preloaded := labels[image.LabelPulled] == "" && len(archives[same[i].Name]) > 0
		if labels[image.LabelVerified] == verified || rule.TrustPreloaded && preloaded {
			return nil
		}
	}
	err = s.registry.Try(ctx, img.Name, nil, func(ctx context.Context, resolver remotes.Resolver) error {
		_, err := signature.Verify(ctx, resolver, img.Name, digest.Digest(img.Target), rule)
		return err
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	for i := range same {
		same[i].Labels = map[string]string{image.LabelVerified: verified}
		if _, err := store.Update(ctx, same[i], "labels."+image.LabelVerified); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// stepError returns an error of Ensure with its waiting reason and its cause.
func stepError(ref, reason string, err error) error {
	return &runner.StepError{Reason: reason, Err: cause.Wrap(err, classify(ref, reason, err))}
}

// signatureError returns the error of an image whose signature is invalid or could not be checked.
func signatureError(ref string, err error) error {
	reason := runner.ReasonErrImagePull
	if errors.Is(err, signature.ErrInvalid) {
		reason = runner.ReasonSignatureValidationFailed
	}
	return stepError(ref, reason, fmt.Errorf("image %q: %w", ref, err))
}

// neverPullError has the same text as kubelet's, which users and tools search for.
type neverPullError string

// Error implements error.
func (e neverPullError) Error() string {
	return fmt.Sprintf("Container image %q is not present with pull policy of Never", string(e))
}
