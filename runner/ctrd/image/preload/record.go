package preload

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"monopod/internal/regular"
)

// stamp identifies a version of a file.
type stamp struct {
	Size  int64     `json:"size"`
	MTime time.Time `json:"mtime"`
	Inode uint64    `json:"inode"`
}

// imported is the record of an archive, in memory and as a label of the containerd namespace, so that it is lost together with the images.
type imported struct {
	stamp
	Names []string `json:"names"`

	// err is why it could not be imported, or nil.
	err error
}

// stampOf follows symbolic links, which preload directories may contain.
func stampOf(path string) (stamp, error) {
	st, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	if !st.Mode().IsRegular() {
		return stamp{}, &fs.PathError{Op: "open", Path: path, Err: regular.ErrSpecial}
	}
	s := stamp{Size: st.Size(), MTime: st.ModTime().UTC()}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		s.Inode = sys.Ino
	}
	return s, nil
}

func (s stamp) same(o stamp) bool {
	return s.Size == o.Size && s.Inode == o.Inode && s.MTime.Equal(o.MTime)
}

// labelPrefix begins the keys of the namespace labels that hold records. A hash of the path follows.
const labelPrefix = "monopod.dev/preload."

// labelValue is the value of such a label. A label is limited to 4096 bytes with its key, so an archive with very many images is not
// remembered and is imported at each start.
type labelValue struct {
	Path string `json:"path"`
	imported
}

func (p *Preloader) remember(ctx context.Context, path string, rec imported) error {
	b, err := json.Marshal(labelValue{Path: path, imported: rec})
	if err != nil {
		return err
	}
	ns, _ := namespaces.Namespace(ctx)
	return p.Local.Client.NamespaceService().SetLabel(ctx, ns, labelKey(path), string(b))
}

func labelKey(path string) string {
	return fmt.Sprintf("%s%x", labelPrefix, sha256.Sum256([]byte(path)))
}

// remembered returns the archives that were imported in earlier runs and whose images all exist.
func (p *Preloader) remembered(ctx context.Context) map[string]imported {
	known := map[string]imported{}
	ns, _ := namespaces.Namespace(ctx)
	labels, err := p.Local.Client.NamespaceService().Labels(ctx, ns)
	if err != nil {
		if !errdefs.IsNotFound(err) {
			p.Log.Warn("preload archives are imported again", "err", err)
		}
		return known
	}
	for key, value := range labels {
		var v labelValue
		if err := json.Unmarshal([]byte(value), &v); err != nil || labelKey(v.Path) != key {
			continue // another label
		}
		missing := func(name string) bool { return p.present(ctx, name) != nil }
		if !slices.ContainsFunc(v.Names, missing) {
			known[v.Path] = v.imported
			if slices.Contains(p.Dirs, filepath.Dir(v.Path)) {
				p.Record(v.Path, v.Names)
			}
		}
	}
	return known
}
