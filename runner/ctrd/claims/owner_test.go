package claims

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/cause"
	"monopod/manifests"
)

// shelf is a book that follows the objects of several sources.
type shelf struct {
	*Book
	t    *testing.T
	used map[string]bool
}

// openShelf opens the book of a directory.
func openShelf(t *testing.T, dir string) *shelf {
	t.Helper()
	s := &shelf{t: t, used: map[string]bool{}}
	b, err := OpenBook(dir, func(claim string) bool { return s.used[claim] })
	check(t, err)
	s.Book = b
	return s
}

// bind follows documents of a source as the only ones, and binds their claim c. It creates the directory if the claim gets one.
func (s *shelf) bind(source string, docs ...string) error {
	s.t.Helper()
	objects := within(written(s.t, source, docs...))
	s.follow(objects)
	e, err := s.Bind(requestOf(objects, source), "")
	if err == nil && e.Volume == "" {
		check(s.t, os.MkdirAll(s.Directory("default/c"), 0o755))
	}
	return err
}

func (s *shelf) follow(objects *manifests.Objects) []string {
	s.t.Helper()
	gone, err := s.Follow(objects, func(manifests.Origin) bool { return true })
	check(s.t, err)
	return gone
}

// bindOfPod binds an ephemeral volume with the name of claim c, for a pod of a source.
func (s *shelf) bindOfPod(source, pod string, docs ...string) (Entry, error) {
	s.t.Helper()
	objects := within(written(s.t, source, docs...))
	s.follow(objects)
	template := written(s.t, source, pvc("c", ""))
	q := requestOf(within(template), source)
	q.Refs = manifests.StorageRefs(objects, source)
	return s.Bind(q, pod)
}

// refused checks that a claim of a reader is refused because its storage belongs to another source.
func (s *shelf) refused(err error, owner, reader string) {
	s.t.Helper()
	c := cause.Of(err)
	if c.Kind != cause.ClaimUnbound || c.Fault != cause.Owned || c.Owner != owner || c.Reader != reader {
		s.t.Errorf("error %v, cause %+v", err, c)
	}
}

// The directory of a deleted claim was given to any source that wrote its name again.
func TestADeletedClaimStaysWithItsSpace(t *testing.T) {
	for _, c := range []struct {
		first, second string
		taken         bool
	}{
		{"applied", "fleet", false},
		{"fleet", "site", false},
		{"fleet", "fleet", true},
		{"fleet", "applied", true}, // local may take over
	} {
		t.Run(c.first+" to "+c.second, func(t *testing.T) {
			dir := t.TempDir()
			s := openShelf(t, dir)
			check(t, s.bind(c.first, pvc("c", "")))
			s.follow(within())
			s = openShelf(t, dir)
			err := s.bind(c.second, pvc("c", ""))
			if c.taken {
				check(t, err)
				s.follow(within())
				if c.first != c.second {
					s.refused(s.bind(c.first, pvc("c", "")), c.second, c.first)
				}
				return
			}
			s.refused(err, c.first, c.second)
			if path := cause.Of(err).Path; path != s.Directory("default/c") || !strings.Contains(err.Error(), "or remove "+path) {
				t.Errorf("no advice: %v", err)
			}
			_, err = s.Check(requestOf(within(written(t, c.second, pvc("c", ""))), c.second), "")
			s.refused(err, c.first, c.second)
			check(t, s.bind(c.first, pvc("c", ""))) // which still has it
			s.follow(within())
			check(t, os.Remove(s.Directory("default/c")))
			check(t, s.bind(c.second, pvc("c", ""))) // nothing is left
			check(t, s.bind(c.second, pvc("c", "")))
			s.refused(s.bind("other", pvc("c", "")), c.second, "other")
		})
	}
}

// The class of a claim in another space decides nothing for the directory, and neither does its deletion.
func TestAClaimOfAnotherSpaceDeletesNothing(t *testing.T) {
	s := openShelf(t, t.TempDir())
	check(t, s.bind("applied", pvc("c", "")))
	scratch := class("scratch", "}\nprovisioner: x.io/y\nreclaimPolicy: Delete")
	s.refused(s.bind("fleet", scratch, pvc("c", ", storageClassName: scratch")), "applied", "fleet")
	if gone := s.follow(within()); gone != nil {
		t.Errorf("gone: %v", gone)
	}
}

// TestTheClaimsOfEarlierVersions have no source, but the place of their object.
func TestTheClaimsOfEarlierVersions(t *testing.T) {
	open := func(t *testing.T, entry string) *shelf {
		dir := t.TempDir()
		check(t, os.MkdirAll(filepath.Join(dir, "default", "c"), 0o755))
		check(t, os.WriteFile(filepath.Join(dir, bookFile), []byte(`{"default/c": `+entry+`}`), 0o600))
		return openShelf(t, dir)
	}
	const ofFleet = `{"origin": {"source": "fleet", "file": "/x/fleet.yaml", "line": 1}}`
	t.Run("its source has it", func(t *testing.T) {
		s := open(t, ofFleet)
		s.refused(s.bind("site", pvc("c", "")), "fleet", "site") // which is read first
		check(t, s.bind("fleet", pvc("c", "")))
		if e := s.entries["default/c"]; e.Source != "fleet" {
			t.Errorf("recorded: %+v", e)
		}
	})
	t.Run("local takes over, and the pod that runs keeps it", func(t *testing.T) {
		s := open(t, ofFleet)
		s.used["default/c"] = true
		check(t, s.bind("applied", pvc("c", "")))
	})
	t.Run("nobody knows whose it was", func(t *testing.T) {
		s := open(t, `{"origin": {}}`)
		check(t, s.bind("fleet", pvc("c", "")))
		s.follow(within())
		s.refused(s.bind("site", pvc("c", "")), "fleet", "site")
	})
	t.Run("no entry, but a directory", func(t *testing.T) {
		s := open(t, ofFleet)
		check(t, os.Remove(filepath.Join(s.dir, bookFile)))
		s = openShelf(t, s.dir)
		check(t, s.bind("site", pvc("c", "")))
		s.follow(within())
		s.refused(s.bind("fleet", pvc("c", "")), "site", "fleet")
	})
}

// An ephemeral volume with the name of a deleted claim took its entry, and with it the owner of the directory.
func TestAVolumeOfAPodKeepsWhoOwnsTheDirectory(t *testing.T) {
	s := openShelf(t, t.TempDir())
	check(t, s.bind("applied", pvc("c", "")))
	_, err := s.bindOfPod("fleet", "uid", pv("v", "1Gi", ""))
	s.refused(err, "applied", "fleet")
	if e, err := s.bindOfPod("fleet", "uid"); err != nil || e.Volume != "" {
		t.Errorf("a directory of the pod: %+v, %v", e, err)
	}
	if e, err := s.bindOfPod("applied", "uid", pv("v", "1Gi", "")); err != nil || e.Volume != "v" {
		t.Errorf("a volume of the same space: %+v, %v", e, err)
	}
	check(t, s.Release("uid"))
	s.refused(s.bind("fleet", pvc("c", "")), "applied", "fleet")
}

// A claim that had a directory before it had a volume lost its entry with the volume.
func TestADirectoryHasAnOwnerAfterItsClaimLostAVolume(t *testing.T) {
	s := openShelf(t, t.TempDir())
	check(t, s.bind("applied", pvc("c", "")))
	check(t, s.bind("applied", pvc("c", ", volumeName: v"), pv("v", "1Gi", "")))
	objects := within(written(t, "applied", pvc("d", ", volumeName: v"), pv("v", "1Gi", "")))
	s.follow(objects)
	_, err := s.Bind(Request{Claim: objects.PersistentVolumeClaim("default", "d"), Refs: manifests.StorageRefs(objects, "applied"), NodeName: "here"}, "")
	check(t, err)
	s.refused(s.bind("fleet", pvc("c", "")), "applied", "fleet")
}
