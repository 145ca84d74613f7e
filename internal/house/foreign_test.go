package house

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"testing"
)

// amongForeignFiles lists the packages that work below volumes, images, root file systems and other directories of containers.
func amongForeignFiles() []string {
	return []string{
		"internal/regular", "internal/tree", "runner/ctrd/claims", "runner/ctrd/confine",
		"runner/ctrd/container", "runner/ctrd/fsgroup", "runner/ctrd/image/layer", "runner/ctrd/image/local", "runner/ctrd/logs", "runner/ctrd/podfiles",
		"runner/ctrd/process", "runner/ctrd/remote", "runner/ctrd/shim", "runner/ctrd/usage", "runner/ctrd/volume", "runner/ctrd/volumes",
	}
}

// openers are calls that open or change a file by its name, by package.
func openers() map[string][]string {
	return map[string][]string{
		"os": {
			"Open", "OpenFile", "ReadFile", "WriteFile", "Create", "ReadDir", "Chown", "Lchown", "Chmod", "Chtimes", "Truncate", "OpenRoot", "OpenInRoot", "DirFS",
			"CopyFS",
		},
		"filepath": {"Walk", "WalkDir"},
		"fs":       {"WalkDir", "ReadFile", "ReadDir"},
		"unix":     {"Open", "Openat", "Openat2", "Chmod", "Chown", "Lchown", "Fchownat", "Fchmodat", "Setxattr"},
		"syscall":  {"Open", "Openat", "Chmod", "Chown", "Lchown", "Setxattr"},
	}
}

// ownFiles lists the files and functions of these packages that open files by name, with the reason why no container can replace them.
func ownFiles() map[string]string {
	const (
		state  = "the state directory belongs to root, and no container mounts it"
		logs   = "the directory of logs belongs to root; a container reaches it only by a hostPath, which is as much as root"
		kernel = "files of the kernel or of the machine"
		volume = "the directory of the volume itself: its parent is ours, and no container mounts that"
	)
	return map[string]string{
		"runner/ctrd/confine/apparmor_linux.go":                  kernel,
		"runner/ctrd/confine/selinux_linux.go readSELinuxPolicy": kernel,
		"runner/ctrd/image/layer/layer.go RemoveWhiteouts":       "a committed layer, in which nothing runs; nothing is opened but directories",
		"runner/ctrd/image/local/copy.go":                        "a read-only view of a layer, in which nothing runs, and a copy that no container has yet; only regular files are opened",
		"runner/ctrd/logs/file.go":                               logs,
		"runner/ctrd/logs/journal.go":                            state,
		"runner/ctrd/logs/keeper.go compress":                    logs,
		"runner/ctrd/logs/names.go":                              logs,
		"runner/ctrd/logs/reader.go":                             state,
		"runner/ctrd/logs/recover.go":                            state,
		"runner/ctrd/logs/spool.go":                              state,
		"runner/ctrd/logs/total.go":                              logs,
		"runner/ctrd/podfiles/podfiles.go":                       "a container has bind mounts of single files, which it can write and cannot replace",
		"runner/ctrd/process/attach.go":                          state,
		"runner/ctrd/process/exec.go":                            state,
		"runner/ctrd/process/forward_linux.go":                   state,
		"runner/ctrd/process/rootfs_linux.go":                    kernel,
		"runner/ctrd/process/signals_linux.go":                   kernel,
		"runner/ctrd/process/stream.go":                          state,
		"runner/ctrd/remote/device.go readable":                  "a device that the administrator names, below /dev",
		"runner/ctrd/remote/disks.go":                            kernel,
		"runner/ctrd/remote/remote.go targets":                   "a directory of a pod, whose volumes are not entered",
		"runner/ctrd/remote/session.go":                          "directories of pods, whose volumes are not entered",
		"runner/ctrd/shim/cgroup.go":                             kernel,
		"runner/ctrd/shim/fifo.go":                               state,
		"runner/ctrd/shim/hidden.go":                             state,
		"runner/ctrd/shim/log.go":                                state,
		"runner/ctrd/shim/message.go":                            "a container has a bind mount of the message, which it can write and cannot replace",
		"runner/ctrd/shim/record.go":                             state,
		"runner/ctrd/volume/claims.go makeVolumeDir":             volume,
		"runner/ctrd/volume/claims.go giveToGroup":               "a mark in the pod's directory, which no container mounts",
		"runner/ctrd/volume/emptydir_linux.go ownEmptyDir":       volume,
		"runner/ctrd/volume/objectroom_linux.go held":            "our own tmpfs, which containers get read-only; nothing is opened but directories",
		"runner/ctrd/volume/volumes.go createHostPath":           "O_EXCL: what is there already is not opened",
		"runner/ctrd/volumes/subpath_linux.go makeMountPoint":    state,
		"runner/ctrd/volumes/subpath_linux.go Unbind":            state,
	}
}

// TestForeignFilesAreOpenedByOnePackage: anything may take the place of a name below a directory that containers write to, and opening a FIFO
// blocks, opening a device starts it, and a link leads elsewhere.
func TestForeignFilesAreOpenedByOnePackage(t *testing.T) {
	unused := ownFiles()
	seen := map[string]bool{}
	eachProductFile(t, func(file string, files *token.FileSet, f *ast.File) {
		if !slices.Contains(amongForeignFiles(), path.Dir(file)) {
			return
		}
		seen[path.Dir(file)] = true
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				for pkg, names := range openers() {
					if !isCall(n, pkg, names...) {
						continue
					}
					name := file + " " + fn.Name.Name
					if ownFiles()[name] == "" {
						name = file
					}
					if ownFiles()[name] == "" {
						t.Errorf("%s: %s opens a file by name: use internal/foreign, or say in ownFiles why no container can replace it", files.Position(n.Pos()), fn.Name.Name)
					}
					delete(unused, name)
				}
				return true
			})
		}
	})
	for name := range unused {
		t.Errorf("%s opens nothing any more: take it out of the list", name)
	}
	for _, dir := range amongForeignFiles() {
		if !seen[dir] {
			t.Errorf("there is no package %s", dir)
		}
	}
}
