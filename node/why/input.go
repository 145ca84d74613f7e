package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"monopod/internal/cause"
	"monopod/internal/model"
)

// input explains a file or URL; ok is false when it has no problem.
func (f Facts) input(in *model.Input) (c Chain, ok bool) {
	b := newBuilder(f, Pod{}, Chain{Input: in.Input})
	goesOn, changes, soon := f.goesOn(in), "as soon as it changes", ""
	if f.Daemon != "" {
		changes, soon = "once monopod runs again", " once monopod runs again"
	}
	switch in.State {
	case model.InputRefused:
		c.Text = in.Input + " is refused; " + goesOn
		is := "it is refused"
		if age := strings.TrimSuffix(b.ago(in.Since), " ago"); age != "" {
			is = "it has been refused for" + age
		}
		b.cause(cause.InputRefused, "", "%s: %s", is, problems(len(in.Errors)))
		b.chain.Steps[0].Lines = in.Errors
		b.next(time.Time{}, "it is re-read %s; until then %s", changes, goesOn)
		if isURL(in.Input) {
			b.act("fix the errors above at the URL")
		} else {
			b.act("fix the errors above, and check with `monopod validate %s`", in.Input)
		}
	case model.InputUnreachable:
		c.Text = in.Input + " cannot be read; " + goesOn
		b.cause(cause.InputUnreachable, "", "%s", b.unreadText(in, len(f.podsOf(in)) > 0))
		b.chain.Steps[0].Lines = in.Errors
		b.next(time.Time{}, "it is retried%s; nothing is removed meanwhile", soon)
		switch {
		case isURL(in.Input):
			b.act("%s", f.placeAdvice(in.Cause))
		case in.Input == in.Source:
			b.act("check %s", f.Instance.Log())
		default:
			b.act("check that it exists and is readable: ls -l %s", in.Input)
		}
	case model.InputConflict:
		c.Text = in.Input + " defines an object that another file already defines"
		b.cause(cause.InputConflict, "", "the first definition is used:")
		b.chain.Steps[0].Lines = in.Errors
		b.next(time.Time{}, "it is used as soon as the other one is removed")
		if kind, namespace, name, ok := appliedName(in.Input); ok && isApplied(f.Places, in.Input) {
			b.act("remove the applied object (`monopod delete -n %s %s %s`) or the other one", namespace, kind, name)
		} else {
			b.act("rename or remove one of them")
		}
	default:
		return Chain{}, false
	}
	c.Input, c.Reason, c.Steps = in.Input, b.chain.Reason, b.chain.Steps
	return c, true
}

// placeAdvice is what to do about a place on the network that cannot be read.
func (f Facts) placeAdvice(c cause.Cause) string {
	switch config := inFile(f.Places.Config); c.Fault {
	case cause.Redirected:
		return "set the URL" + config + " to the target of the redirect, if that is correct"
	case cause.Denied:
		return "the server requires another login: check the headers of the source" + config + " and the files that they reference (expired token?)"
	case cause.NotFound:
		return "the server has nothing at this path: correct the URL" + config + ", or upload the manifests"
	case cause.CertificateExpired:
		return "renew the certificate of the server, and check the clock of this machine (date)"
	case cause.CertificateName:
		return "use a host name in the URL" + config + " that the certificate of the server contains, or replace the certificate"
	case cause.CertificateAuthority:
		return "set caFile of the source" + config + " to the CA of the server's certificate"
	case cause.CertificateRefused:
		return "the server rejects the client certificate: check certFile and keyFile of the source" + config
	case cause.File:
		return "correct " + c.Path + ", or its path" + config
	case cause.PlainHTTP:
		return "the server does not speak TLS: correct the URL" + config
	case cause.Failing:
		return "the server reports an internal error: contact its operator if the error persists"
	case cause.Lookup:
		return "check the network and DNS of this machine (/etc/resolv.conf), and the host name in the URL" + config
	}
	return "check that the server is running and reachable from this machine, and that the URL" + inFile(f.Places.Config) + " is right"
}

// podsOf returns the pods of an input that exist: those that its report names, or that still run by what an earlier run of monopod read.
func (f Facts) podsOf(in *model.Input) []string {
	if len(in.Pods) > 0 {
		return in.Pods
	}
	pods := map[string]bool{}
	for i := range f.Inputs {
		if of := &f.Inputs[i]; isWithin(in, of.Input, of.Source) {
			for _, key := range of.Pods {
				pods[key] = true
			}
		}
	}
	for i := range f.Pods {
		if p := &f.Pods[i]; p.Trouble.Kind != model.TroubleRemoving && isWithin(in, p.file(), p.Object.Annotations[annotationSource]) {
			pods[p.key()] = true
		}
	}
	return slices.Sorted(maps.Keys(pods))
}

// isWithin reports whether a file is the input, is in it if that is a directory, or belongs to the source if the input is all of one.
func isWithin(in *model.Input, file, source string) bool {
	below := !isURL(in.Input) && strings.HasPrefix(file, strings.TrimSuffix(in.Input, "/")+"/")
	return file == in.Input || below || in.Input == in.Source && source == in.Source
}

// goesOn says what an input that cannot be used means for its pods.
func (f Facts) goesOn(in *model.Input) string {
	switch pods := f.podsOf(in); {
	case f.Daemon != "":
		return "those of its pods that run continue"
	case len(pods) > maxListed:
		return fmt.Sprintf("its %d pods continue with its last good content", len(pods))
	case len(pods) > 0:
		return strings.Join(pods, ", ") + " " + goOn(len(pods)) + " with its last good content"
	}
	return "none of its pods run"
}

func (b *builder) unreadText(in *model.Input, used bool) string {
	switch {
	case !in.FromDisk.IsZero():
		return fmt.Sprintf("it has not answered since monopod started; the answer cached%s is used:", b.ago(in.FromDisk))
	case !used:
		return "it cannot be read:"
	}
	return "it cannot be read; its last good content is used:"
}

// appliedName takes the name of a file apart in which something is kept that was applied.
func appliedName(path string) (kind, namespace, name string, ok bool) {
	base := strings.TrimSuffix(path[strings.LastIndexByte(path, '/')+1:], ".yaml")
	kind, rest, _ := strings.Cut(base, ".")
	namespace, name, ok = strings.Cut(rest, ".")
	return kind, namespace, name, ok
}

func goOn(n int) string {
	if n == 1 {
		return "continues"
	}
	return "continue"
}

func problems(n int) string {
	if n == 1 {
		return "1 error"
	}
	return fmt.Sprintf("%d errors", n)
}

func isURL(input string) bool { return strings.Contains(input, "://") }
