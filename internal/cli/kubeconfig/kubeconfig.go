package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"monopod/internal/atomicfile"
	"monopod/internal/program"
	"monopod/internal/regular"
	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/authority"
	"monopod/node/localapi"
	"monopod/node/localclient"
)

// options are the flags of `kubeconfig`.
type options struct {
	program.ClientFlags
	user, server, output string
	groups               []string
	force                bool
}

// KubeconfigCommand returns `monopod kubeconfig`.
func (p Commands) KubeconfigCommand() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "kubeconfig [view|edit|admin]",
		Short: "Write a kubeconfig for kubectl",
		Long: "Issues a client certificate for the Kubernetes API that monopod serves on `apiServer.address`, and writes it as a kubeconfig to standard output or a file " +
			"with mode 0600. The certificate is valid for 90 days and cannot be revoked: to revoke all of them, remove pki/api in `rootDirectory` and restart monopod.\n\n" +
			"Roles: admin (everything; equals root on this machine), edit (everything except nodes, privileged pods and Secrets from files and URLs) or view (read " +
			"everything except Secrets; no exec). The default is admin; with --user or --group, no role: permissions come from `apiServer.rules`.",
		Example: "monopod kubeconfig --output ~/.kube/config\nmonopod kubeconfig view --server https://edge-1.example:6443 --output viewer.yaml\n" +
			"monopod kubeconfig edit --user alice -n team-a --output alice.yaml",
		Args:      program.RangeArgs(0, 1),
		ValidArgs: access.Roles(),
	}
	f := cmd.Flags()
	o.AddSocket(f)
	f.StringVar(&o.user, "user", "", "`name` of the user (default: the role)")
	f.StringSliceVar(&o.groups, "group", nil, "additional `groups` of the user; repeatable")
	f.StringVarP(&o.Namespace, "namespace", "n", "", "default `namespace` of clients (default: default)")
	f.StringVar(&o.server, "server", "", "`URL` of the API for clients on other machines (default: https:// and apiServer.address)")
	f.StringVar(&o.output, "output", "", "`file` to write (default: standard output)")
	f.BoolVar(&o.force, "force", false, "replace a file that monopod did not write")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		role := ""
		switch {
		case len(args) > 0:
			role = args[0]
		case o.user == "" && len(o.groups) == 0:
			role = access.RoleAdmin
		}
		return p.kubeconfig(cmd.Context(), o, role)
	}
	return cmd
}

func (p Commands) kubeconfig(ctx context.Context, o *options, role string) error {
	r := localapi.KubeconfigRequest{User: o.user, Groups: slices.Clone(o.groups), Namespace: o.Namespace, Server: o.server}
	if role != "" {
		group := access.GroupOf(role)
		if group == "" {
			return program.Usagef("unknown role %q; use view, edit or admin", role)
		}
		if !slices.Contains(r.Groups, group) {
			r.Groups = append([]string{group}, r.Groups...)
		}
	}
	if r.User == "" {
		if r.User = role; role == "" {
			return program.Usagef("--group without a role needs --user")
		}
	}
	if err := o.replaceable(); err != nil {
		return err
	}
	answer, err := localclient.Kubeconfig(ctx, p.Client(&o.ClientFlags), r)
	if err != nil {
		return err
	}
	if o.output == "" {
		p.Out().Lines(answer.Kubeconfig)
		return nil
	}
	if err := o.replaceable(); err != nil { // the response may have taken long
		return err
	}
	err = os.Mkdir(filepath.Dir(o.output), 0o700) // ~/.kube is missing until kubectl or this command creates it
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = atomicfile.Write(o.output, []byte(answer.Kubeconfig), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	p.Errs().Printf("wrote %s, valid for %d days; use it with: export KUBECONFIG=%s\n", o.output, int(authority.ValidClient.Hours()/24), o.output)
	return nil
}

// maxKubeconfig bounds the size of a kubeconfig that is read.
const maxKubeconfig = 1 << 20

// replaceable returns an error if the output file exists and is not a kubeconfig of monopod.
func (o *options) replaceable() error {
	if o.output == "" || o.force {
		return nil
	}
	data, err := regular.ReadFile(o.output, maxKubeconfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w; choose another file with --output", err)
	case len(data) > 0 && !authority.IsOurs(data):
		return fmt.Errorf("%s is not a kubeconfig that monopod wrote; choose another file with --output, or replace it with --force", o.output)
	}
	return nil
}
