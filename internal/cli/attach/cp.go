package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"monopod/internal/cli/lookup"
	"monopod/internal/program"
	"monopod/internal/tree"
	"monopod/manifests"
	"monopod/node/localclient"
)

// copyOptions are the flags of `cp`.
type copyOptions struct {
	program.ClientFlags
	container string
}

// CopyCommand returns `monopod cp`.
func (p Commands) CopyCommand() *cobra.Command {
	o := &copyOptions{}
	cmd := &cobra.Command{
		Use:   "cp POD:PATH LOCAL | LOCAL POD:PATH",
		Short: "Copy files into or out of a container",
		Long: "The image needs no tar and no shell. If the destination is a directory, the source is copied into it; otherwise it gets that name. `DIR/.` means the " +
			"content of a directory. PATH is relative to the root directory of the container and may lie in a volume.\n\n" +
			"`-` is a tar archive on standard input or output, for a directory PATH. Files copied into a container belong to its user. Symbolic links that lead out " +
			"of the copied directory are skipped. The container must be running.",
		Example: "monopod cp web:/etc/nginx/nginx.conf .\nmonopod cp site web:/srv -c app",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return program.Usagef("usage: %s", cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.copy(cmd.Context(), o, args[0], args[1]) },
	}
	o.Add(cmd.Flags())
	cmd.Flags().StringVarP(&o.container, "container", "c", "", "container `name` (default: the first one)")
	return cmd
}

// SplitPlace parses POD:PATH. An argument that begins with a dot or a slash is a local path.
func SplitPlace(arg string) (pod, path string, remote bool) {
	pod, path, remote = strings.Cut(arg, ":")
	return pod, path, remote && !strings.HasPrefix(arg, ".") && !strings.HasPrefix(arg, "/")
}

func (p Commands) copy(ctx context.Context, o *copyOptions, from, to string) error {
	fromPod, fromPath, out := SplitPlace(from)
	toPod, toPath, in := SplitPlace(to)
	switch {
	case out && in:
		return program.Usagef("one of the two must be a local path; for both: monopod cp %s - | monopod cp - %s", from, to)
	case !out && !in:
		return program.Usagef("neither %q nor %q is in a container: write POD:PATH", from, to)
	}
	pod, path := fromPod, fromPath
	if in {
		pod, path = toPod, toPath
	}
	if path == "" {
		return program.Usagef("no path given in %s", pod)
	}
	key, err := o.PodArg([]string{pod})
	if err != nil {
		return err
	}
	c := p.Client(&o.ClientFlags)
	place := localclient.FilePlace{Pod: key, Container: o.container, Path: path}
	if err := p.nameContainer(ctx, c, key, &place.Container); err != nil {
		return err
	}
	var warnings []string
	if in {
		warnings, err = p.copyIn(ctx, c, from, place)
	} else {
		warnings, err = p.copyOut(ctx, c, place, to)
	}
	for _, w := range warnings {
		p.Errs().Println("warning:", w)
	}
	if err != nil && ctx.Err() != nil {
		return program.CodeError{Code: p.Signals.ExitCode()}
	}
	return err
}

// nameContainer sets the container if none was named.
func (p Commands) nameContainer(ctx context.Context, c *localclient.Client, key manifests.Key, name *string) error {
	pod, err := lookup.FindPod(ctx, c, key)
	if err == nil && *name == "" {
		*name = p.defaultContainer(pod)
	}
	return err
}

// copyOut copies from a container to a local path, or standard output.
func (p Commands) copyOut(ctx context.Context, c *localclient.Client, from localclient.FilePlace, to string) (warnings []string, err error) {
	warn := func(text string) { warnings = append(warnings, text) }
	more, err := c.ReadFiles(ctx, from, func(r io.Reader) error {
		if to == "-" {
			_, err := io.Copy(p.Raw(), r)
			return err
		}
		name := tree.Name(from.Path)
		root, err := os.Open("/")
		if err != nil {
			return err
		}
		defer root.Close()
		place, err := absolute(to)
		if err != nil {
			return err
		}
		target, err := tree.FindTarget(root, place, name)
		if err != nil {
			return err
		}
		defer target.Dir.Close()
		return tree.Unpack(ctx, r, target.Dir, tree.Options{From: name, To: target.Name, Careful: true, Warn: warn})
	})
	return append(warnings, more...), err
}

// absolute returns an absolute path; a trailing slash, which requires a directory, is kept.
func absolute(path string) (string, error) {
	full, err := filepath.Abs(path)
	if err == nil && strings.HasSuffix(path, "/") {
		full += "/"
	}
	return full, err
}

// copyIn copies a local path, or standard input, into a container.
func (p Commands) copyIn(ctx context.Context, c *localclient.Client, from string, to localclient.FilePlace) ([]string, error) {
	if from == "-" {
		written, err := c.WriteFiles(ctx, to, "", p.Stdin)
		return written.Warnings, err
	}
	if st, err := os.Stat(from); err != nil { // before it is opened: a FIFO would wait
		return nil, err
	} else if !st.Mode().IsRegular() && !st.IsDir() {
		return nil, fmt.Errorf("%s: neither a regular file nor a directory", from)
	}
	f, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	name := tree.Name(from)
	var warnings []string
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := tree.Pack(ctx, w, f, name, func(text string) { warnings = append(warnings, text) })
		_ = w.CloseWithError(err)
		packed <- err
	}()
	written, err := c.WriteFiles(ctx, to, name, r)
	_ = r.CloseWithError(errAnswered)
	if perr := <-packed; perr != nil && !errors.Is(perr, errAnswered) && !errors.Is(perr, io.ErrClosedPipe) {
		err = perr // which is why the other side got nothing more
	}
	return append(warnings, written.Warnings...), err
}

// errAnswered stops sending once the answer has arrived.
var errAnswered = errors.New("the response has arrived")
