package claims

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/manifests/decode"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// documents decodes manifests.
func documents(t testing.TB, docs ...string) *manifests.Objects {
	t.Helper()
	c, err := decode.All("/x/all.yaml", []byte("# nothing else\n"+strings.Join(docs, "\n---\n")), decode.Options{Source: "file"})
	check(t, err)
	return manifests.NewObjects(c.Objects)
}

func pv(name, size, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %s, labels: {name: %s}}\nspec: {accessModes: [ReadWriteOnce, ReadOnlyMany], capacity: {storage: %s}, hostPath: {path: /x}%s}\n",
		name, name, size, more)
}

// csi is a volume that cannot be mounted here.
func csi(name, more string) string {
	return strings.Replace(pv(name, "1Gi", more), "hostPath: {path: /x}", "csi: {driver: d, volumeHandle: h}", 1)
}

func pvc(name, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}%s}\n", name, more)
}

func class(name, more string) string {
	return fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: %s%s\n", name, more)
}

func request(objects *manifests.Objects, name string) Request {
	return Request{Claim: objects.PersistentVolumeClaim("default", name), Refs: manifests.StorageRefs(objects, ""), NodeName: "here"}
}

// TestChoose has one claim c with several volumes and classes.
func TestChoose(t *testing.T) {
	on := func(expression string) string {
		return ", nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [" + expression + "]}]}}"
	}
	for _, tt := range []struct {
		name string
		docs []string
		// want is the volume, "" a directory; or err is the text of an error.
		want, err string
	}{
		{name: "nothing else", docs: []string{pvc("c", "")}},
		{name: "a class that nobody knows", docs: []string{pvc("c", ", storageClassName: gp2")}},
		{name: "no class on purpose", docs: []string{pvc("c", `, storageClassName: ""`)}, err: "no PersistentVolume fits, and none is created: storageClassName \"\""},
		{name: "no class on purpose, and a volume", docs: []string{pvc("c", `, storageClassName: ""`), pv("v", "1Gi", "")}, want: "v"},
		{name: "the smallest", docs: []string{pvc("c", ""), pv("big", "3Gi", ""), pv("fits", "2Gi", ""), pv("small", "900Mi", "")}, want: "fits"},
		{name: "the first by name", docs: []string{pvc("c", ""), pv("b", "1Gi", ""), pv("a", "1Gi", "")}, want: "a"},
		{name: "too small", docs: []string{pvc("c", ""), pv("v", "1Mi", "")}},
		{name: "too small in its class", docs: []string{pvc("c", ", storageClassName: disks"), pv("v", "1Mi", ", storageClassName: disks")}, err: `no PersistentVolume fits (v: it has 1Mi), and none is created: class "disks" only has existing PersistentVolumes`},
		{name: "a class with a provisioner", docs: []string{class("disks", "}\nprovisioner: x.io/y"), pvc("c", ", storageClassName: disks"), pv("v", "1Mi", ", storageClassName: disks")}},
		{name: "a class without one", docs: []string{class("disks", "}\nprovisioner: kubernetes.io/no-provisioner"), pvc("c", ", storageClassName: disks")}, err: `StorageClass "disks" has no provisioner`},
		{name: "another class", docs: []string{pvc("c", ""), pv("v", "1Gi", ", storageClassName: disks")}},
		{name: "the default class", docs: []string{
			class("disks", `, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}`+"\nprovisioner: x.io/y"), pvc("c", ""), pv("u", "1Gi", ""), pv("v", "1Gi", ", storageClassName: disks"),
		}, want: "v"},
		{name: "an access mode is missing", docs: []string{strings.Replace(pvc("c", ""), "[ReadWriteOnce]", "[ReadWriteMany]", 1), pv("v", "1Gi", "")}},
		{name: "several access modes", docs: []string{strings.Replace(pvc("c", ""), "[ReadWriteOnce]", "[ReadOnlyMany, ReadWriteOnce]", 1), pv("v", "1Gi", "")}, want: "v"},
		{name: "a selector", docs: []string{pvc("c", ", selector: {matchLabels: {name: b}}"), pv("a", "1Gi", ""), pv("b", "1Gi", "")}, want: "b"},
		{name: "a selector that selects nothing", docs: []string{pvc("c", ", selector: {matchLabels: {name: x}}"), pv("a", "1Gi", "")}, err: "the claim has a selector"},
		{name: "a device for a file system", docs: []string{pvc("c", ""), pv("v", "1Gi", ", volumeMode: Block")}},
		{name: "a device", docs: []string{pvc("c", ", volumeMode: Block"), pv("u", "1Gi", ""), pv("v", "1Gi", ", volumeMode: Block")}, want: "v"},
		{name: "no device", docs: []string{pvc("c", ", volumeMode: Block"), pv("u", "1Gi", "")}, err: "block devices are not created here"},
		{name: "by name", docs: []string{pvc("c", ", volumeName: b"), pv("a", "1Gi", ""), pv("b", "9Gi", "")}, want: "b"},
		{name: "by the name of none", docs: []string{pvc("c", ", volumeName: b"), pv("a", "1Gi", "")}, err: `PersistentVolume "b", which the claim names, does not exist`},
		{name: "by the name of another class", docs: []string{pvc("c", ", volumeName: b"), pv("b", "1Gi", ", storageClassName: x")}, err: `does not fit: its storageClassName is "x"`},
		{name: "named by another claim", docs: []string{pvc("c", ""), pvc("d", ", volumeName: a"), pv("a", "1Gi", ""), pv("b", "1Gi", "")}, want: "b"},
		{name: "given to another claim", docs: []string{pvc("c", ""), pv("a", "1Gi", ", claimRef: {namespace: default, name: d}"), pv("b", "1Gi", "")}, want: "b"},
		{name: "given to another namespace", docs: []string{pvc("c", ""), pv("a", "1Gi", ", claimRef: {namespace: other, name: c}"), pv("b", "1Gi", "")}, want: "b"},
		{name: "given to the claim", docs: []string{pvc("c", ""), pv("a", "1Gi", ""), pv("b", "9Gi", ", storageClassName: x, claimRef: {namespace: default, name: c}")}, want: "b"},
		{name: "named, but given to another", docs: []string{pvc("c", ", volumeName: a"), pv("a", "1Gi", ", claimRef: {namespace: default, name: d}")}, err: "belongs to claim default/d"},
		{name: "for another machine", docs: []string{pvc("c", ""), pv("a", "1Gi", on("{key: kubernetes.io/hostname, operator: In, values: [there]}")), pv("b", "2Gi", on("{key: kubernetes.io/hostname, operator: In, values: [here, there]}"))}, want: "b"},
		{name: "for all machines but this", docs: []string{pvc("c", ", volumeName: a"), pv("a", "1Gi", on("{key: kubernetes.io/hostname, operator: NotIn, values: [here]}"))}, err: "its nodeAffinity is not for this node, here"},
		{name: "for a zone", docs: []string{pvc("c", ""), pv("a", "1Gi", on("{key: topology.kubernetes.io/zone, operator: In, values: [z]}"))}, want: "a"},
		{name: "for another operating system", docs: []string{pvc("c", ""), pv("a", "1Gi", on("{key: kubernetes.io/os, operator: In, values: [windows]}"))}},
		{name: "a kind that cannot be mounted", docs: []string{pvc("c", ""), csi("a", "")}},
		{name: "a class of volumes that cannot be mounted", docs: []string{pvc("c", ", storageClassName: fast"), csi("a", ", storageClassName: fast")}},
		{name: "the name of one that cannot be mounted", docs: []string{pvc("c", ", volumeName: a"), csi("a", "")}, err: `PersistentVolume "a", which the claim names, does not fit: its type cannot be mounted here`},
		{name: "one that cannot be mounted, given to the claim", docs: []string{pvc("c", ""), pv("b", "1Gi", ""), csi("a", ", claimRef: {namespace: default, name: c}")}, err: `PersistentVolume "a", which names the claim, does not fit: its type cannot be mounted here`},
		{name: "another one given to the claim", docs: []string{pvc("c", ""), csi("a", ", claimRef: {namespace: default, name: c}"), pv("b", "1Gi", ", claimRef: {namespace: default, name: c}")}, want: "b"},
		{name: "a server's", docs: []string{pvc("c", ""), strings.Replace(pv("a", "1Gi", ""), "hostPath: {path: /x}", "nfs: {server: s, path: /x}", 1)}, want: "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Choose(request(documents(t, tt.docs...), "c"))
			switch {
			case tt.err == "" && (err != nil || got != tt.want):
				t.Errorf("%q, %v", got, err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("error %v", err)
			}
			if unmountable := cause.Of(err).Fault == cause.Unmountable; unmountable != strings.Contains(tt.err, "cannot be mounted here") {
				t.Errorf("it cannot be mounted: %v", unmountable)
			}
		})
	}
}

// library is a book with the claims that pods use.
type library struct {
	*Book
	t    *testing.T
	dir  string
	used map[string]bool
}

func newLibrary(t *testing.T) *library {
	l := &library{t: t, dir: t.TempDir(), used: map[string]bool{}}
	l.reopen()
	return l
}

func (l *library) reopen() {
	l.t.Helper()
	b, err := OpenBook(l.dir, func(claim string) bool { return l.used[claim] })
	check(l.t, err)
	l.Book = b
}

// bind passes the objects on and binds a claim of them.
func (l *library) bind(name string, docs ...string) (string, error) {
	l.t.Helper()
	l.follow(docs...)
	e, err := l.Bind(request(documents(l.t, docs...), name), "")
	return e.Volume, err
}

func (l *library) follow(docs ...string) []string {
	l.t.Helper()
	gone, err := l.Follow(documents(l.t, docs...), func(manifests.Origin) bool { return true })
	check(l.t, err)
	return gone
}

func (l *library) wants(want string) func(string, error) {
	return func(got string, err error) {
		l.t.Helper()
		if err != nil || got != want {
			l.t.Errorf("bound to %q, %v; want %q", got, err, want)
		}
	}
}

// TestABindingStays although objects are added and deleted, unless they name another volume.
func TestABindingStays(t *testing.T) {
	l := newLibrary(t)
	big, small := pv("big", "5Gi", ""), pv("small", "1Gi", "")
	l.wants("big")(l.bind("c", big, pvc("c", "")))
	l.wants("big")(l.bind("c", small, big, pvc("c", "")))
	l.reopen()
	l.wants("big")(l.bind("c", small, big, pvc("c", "")))
	l.follow("# nothing")
	l.reopen()
	l.wants("big")(l.bind("c", small, big, pvc("c", ""), pvc("d", "")))
	l.wants("small")(l.bind("d", small, big, pvc("c", ""), pvc("d", "")))
	if _, err := l.bind("e", small, big, pvc("e", `, storageClassName: ""`)); err == nil || !strings.Contains(err.Error(), "belongs to claim") {
		t.Errorf("what claims had that are gone was given to another: %v", err)
	}
	if _, err := l.bind("c", small, pvc("c", ""), pvc("d", "")); err == nil || !strings.Contains(err.Error(), "was deleted") {
		t.Errorf("a claim whose volume is lost: %v", err)
	}
	l.used["default/c"] = true
	l.wants("big")(l.bind("c", small, big, pvc("c", ", volumeName: small"), pvc("d", "")))
	delete(l.used, "default/c")
	if _, err := l.bind("c", small, big, pvc("c", ", volumeName: small"), pvc("d", "")); err == nil || !strings.Contains(err.Error(), "belongs to claim default/d") {
		t.Errorf("a volume that belongs to another claim: %v", err)
	}
	l.wants("small")(l.bind("c", small, big, pvc("c", ", volumeName: small")))
	l.wants("small")(l.bind("e", strings.Replace(small, "hostPath:", "claimRef: {namespace: default, name: e}, hostPath:", 1), pvc("e", "")))
	l.used["default/e"] = true
	if _, err := l.bind("f", small, pvc("f", ", volumeName: small")); err == nil {
		t.Error("a volume that a pod has was given to another claim")
	}
}

// TestADirectoryStays although a volume would fit, and without the book.
func TestADirectoryStays(t *testing.T) {
	l := newLibrary(t)
	l.wants("")(l.bind("c", pvc("c", "")))
	check(t, os.MkdirAll(l.Directory("default/c"), 0o755))
	l.wants("")(l.bind("c", pvc("c", ""), pv("v", "1Gi", "")))
	check(t, os.Remove(filepath.Join(l.dir, bookFile)))
	l.reopen()
	l.wants("")(l.bind("c", pvc("c", ""), pv("v", "1Gi", "")))
	l.wants("v")(l.bind("c", pvc("c", ", volumeName: v"), pv("v", "1Gi", "")))
	check(t, os.WriteFile(filepath.Join(l.dir, bookFile), []byte("{broken"), 0o600))
	b, err := OpenBook(l.dir, func(string) bool { return false })
	if err == nil || b == nil {
		t.Errorf("a broken book: %v", err)
	}
	if _, err := os.Stat(filepath.Join(l.dir, bookFile+".broken")); err != nil {
		t.Error(err)
	}
}

// TestStorageStaysForAVolumeThatCannotBeMounted checks that a claim keeps its storage if the objects give it such a volume.
func TestStorageStaysForAVolumeThatCannotBeMounted(t *testing.T) {
	reserved, named := csi("v", ", claimRef: {namespace: default, name: c}"), pvc("c", ", volumeName: v")
	for name, docs := range map[string][]string{"by the claim": {named, csi("v", "")}, "by the volume": {pvc("c", ""), reserved}} {
		l := newLibrary(t)
		if got, err := l.bind("c", docs...); err == nil {
			t.Errorf("%s: a new claim got %q", name, got)
		}
		l.wants("")(l.bind("c", pvc("c", "")))
		l.wants("")(l.bind("c", docs...)) // the book has it
		check(t, os.MkdirAll(l.Directory("default/c"), 0o755))
		check(t, os.Remove(filepath.Join(l.dir, bookFile)))
		l.reopen()
		l.wants("")(l.bind("c", docs...)) // the directory is there
		l = newLibrary(t)
		l.wants("b")(l.bind("c", pvc("c", ""), pv("b", "1Gi", "")))
		l.wants("b")(l.bind("c", append(docs, pv("b", "1Gi", ""))...))
	}
}

// TestWhichDirectoriesGo checks that only directories of classes with the policy Delete are removed, after the object was deleted
// and no pod uses them.
func TestWhichDirectoriesGo(t *testing.T) {
	l := newLibrary(t)
	scratch := class("scratch", "}\nprovisioner: x.io/y\nreclaimPolicy: Delete")
	of := ", storageClassName: scratch"
	docs := []string{scratch, pvc("c", of), pvc("kept", ""), class("unsaid", "}\nprovisioner: x.io/y"), pvc("unsaid", ", storageClassName: unsaid")}
	for _, name := range []string{"c", "kept", "unsaid"} {
		l.wants("")(l.bind(name, docs...))
		check(t, os.MkdirAll(filepath.Join(l.Directory("default/"+name), "sub"), 0o755))
	}
	l.reopen()
	if gone, _ := l.Follow(documents(t), func(manifests.Origin) bool { return false }); gone != nil {
		t.Errorf("gone although its place was not read: %v", gone)
	}
	l.used["default/c"] = true
	if gone := l.follow(); gone != nil {
		t.Errorf("gone although it is in use: %v", gone)
	}
	delete(l.used, "default/c")
	if gone := l.follow(); len(gone) != 1 || gone[0] != "default/c" {
		t.Errorf("gone: %v", gone)
	}
	l.follow(docs...)
	check(t, l.Remove("default/c")) // too late: it is back
	if !l.hasDirectory("default/c") {
		t.Fatal("removed although its claim is there")
	}
	l.follow()
	for _, name := range []string{"c", "kept", "unsaid"} {
		check(t, l.Remove("default/"+name))
		if has := l.hasDirectory("default/" + name); has != (name != "c") {
			t.Errorf("directory %s exists: %t", name, has)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(l.dir, removed)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestVolumesOfPodsAreFree when the pod is gone.
func TestVolumesOfPodsAreFree(t *testing.T) {
	l := newLibrary(t)
	objects := documents(t, pv("v", "1Gi", ""), pvc("c", ""))
	bind := func(pod string) (Entry, error) {
		c := objects.PersistentVolumeClaim("default", "c").DeepCopy()
		c.Name = pod + "-d"
		c.Spec.StorageClassName = new(string)
		return l.Bind(Request{Claim: c, Refs: manifests.StorageRefs(objects, ""), NodeName: "here"}, "uid-"+pod)
	}
	for _, pod := range []string{"a", "a"} {
		if e, err := bind(pod); err != nil || e.Volume != "v" {
			t.Errorf("%v, %v", e, err)
		}
	}
	if _, err := bind("b"); err == nil {
		t.Error("two pods have one volume")
	}
	l.follow() // no document says anything about it
	l.reopen()
	check(t, l.Clean(func(uid string) bool { return uid == "uid-a" }))
	if _, err := bind("b"); err == nil {
		t.Error("the volume of a pod that is there was freed")
	}
	check(t, l.Release("uid-a"))
	if e, err := bind("b"); err != nil || e.Volume != "v" {
		t.Errorf("%v, %v", e, err)
	}
	check(t, l.Clean(func(string) bool { return false }))
	if e, err := bind("c"); err != nil || e.Volume != "v" {
		t.Errorf("%v, %v", e, err)
	}
}

func TestADirectoryIsBelowThatOfTheBook(t *testing.T) {
	l := newLibrary(t)
	for claim, want := range map[string]string{"a/b": "a/b", "../../etc/x": "etc/x", "a/../..": ""} {
		if got := l.Directory(claim); got != filepath.Join(l.dir, want) {
			t.Errorf("%s is at %s", claim, got)
		}
	}
}
