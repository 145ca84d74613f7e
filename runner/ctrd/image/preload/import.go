package preload

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"monopod/runner/ctrd/bounded"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/archive"
)

// importArchive imports an archive, unpacks its images for the platform of this machine and returns their names.
func (p *Preloader) importArchive(ctx context.Context, path string) (names []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // containerd's client does not close the streams of its content writers
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	ctx, done, err := p.Local.Writing(ctx, st.Size())
	if err != nil {
		return nil, err
	}
	defer func() { err = done(err) }()
	stem, _ := archive.Stem(path)
	r, err := archive.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()

	var nameErrs []error
	name := func(ref string) string {
		n, err := archive.ImageName(stem, ref)
		if err != nil {
			nameErrs = append(nameErrs, err)
		}
		return n
	}
	recs, err := p.Local.Client.Import(bounded.Importing(ctx), r,
		client.WithImageRefTranslator(name),
		client.WithDigestRef(func(digest.Digest) string { return name("") }),
		client.WithSkipDigestRef(func(n string) bool { return n != "" }))
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrHeader) {
		return nil, fmt.Errorf("it is not a complete OCI or docker archive: %w", err)
	}
	if err != nil {
		return nil, err
	}
	names, err = p.unpack(ctx, stem, recs)
	if err := errors.Join(append(nameErrs, err)...); err != nil {
		return names, err
	}
	if len(names) == 0 {
		return nil, errors.New("it contains no image")
	}
	return names, nil
}

// unpack gives imported images their normalised names and unpacks them.
func (p *Preloader) unpack(ctx context.Context, stem string, recs []images.Image) (names []string, err error) {
	var errs []error
	for _, rec := range recs {
		rec, err := p.rename(ctx, stem, rec)
		if err == nil {
			err = p.present(ctx, rec.Name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", rec.Name, err))
			continue
		}
		names = append(names, rec.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), errors.Join(errs...)
}

// present unpacks an image. An artifact counts as imported: whoever uses it as an image is told.
func (p *Preloader) present(ctx context.Context, name string) error {
	_, err := p.Repair.Present(ctx, name)
	if errors.Is(err, image.ErrArtifact) {
		return nil
	}
	return err
}

// rename stores an image under its normalised name, because the importer uses io.containerd.image.name unchanged. It removes the digest that a
// registry reported for an earlier image of that name.
func (p *Preloader) rename(ctx context.Context, stem string, rec images.Image) (images.Image, error) {
	name, err := archive.ImageName(stem, rec.Name)
	if err != nil {
		return rec, err
	}
	store, old := p.Local.Client.ImageService(), rec.Name
	rec.Name = name
	delete(rec.Labels, image.LabelPulled)
	rec, err = store.Update(ctx, rec)
	if errdefs.IsNotFound(err) {
		rec.Name = name
		rec, err = store.Create(ctx, rec)
	}
	if err == nil && old != name {
		err = store.Delete(ctx, old)
	}
	return rec, err
}
