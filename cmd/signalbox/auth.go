package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/auth"
)

func authCmd(a *app) *cobra.Command {
	whoami := command("whoami", "Show the identity of this client", "")
	whoami.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, _ []string) error {
		w, err := c.WhoAmI(inv.ctx)
		if err != nil {
			return err
		}
		line := row{{"identity", "identity", w.Identity}, {"on", "auth on", w.Enabled}}
		if w.Enabled {
			return inv.printer().message(line, "%s", w.Identity)
		}
		return inv.printer().message(line, "%s; authentication is off, and every client may do everything", w.Identity)
	})
	return group("auth", "Authentication: tokens and rights",
		`While authentication is off, every client may do everything. Once it is on, a client authenticates
with a token (--token-file) or, over TLS, with a certificate. It then has the rights that were
granted to its identity. The grant with the longest matching path decides.

A token is one of auth create, or one that a platform signed for a trust: auth trust. The identity
of a certificate is "cert:" followed by its common name. A client without credentials
is "anonymous"; it is admitted if that identity has a right. A session belongs to the identity
that started it: a client whose token is revoked or expires reads its file again, and keeps what it holds.`,
		authListCmd(a), whoami, authEnableCmd(a), authDisableCmd(a), tokenCreateCmd(a), tokenRevokeCmd(a),
		grantCmd(a), revokeCmd(a), trustCmd(a))
}

func authEnableCmd(a *app) *cobra.Command {
	c := command("enable", "Enable authentication",
		`Enable authentication. Connections without credentials are closed; create tokens and grant rights
for their clients first.

If no identity has the right admin on / yet, the identity admin is created with it. The secret of
its token is printed, or written to --secret-file, once.`)
	c.Example = "  signalbox auth enable --secret-file admin-token"
	file := secretFlag(c)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, _ []string) error {
		out, err := newSecretWriter(inv, *file)
		if err != nil {
			return err
		}
		defer out.close()
		// The client generates the secret and saves it first. A secret that got lost with the
		// server's answer would lock everybody out.
		secret := auth.NewSecret()
		if err := out.write(secret); err != nil {
			return err
		}
		c, err := inv.admin()
		if err != nil {
			return err
		}
		t, err := c.EnableAuth(inv.ctx, secret)
		if err != nil {
			switch protocol.StatusOf(err) {
			case protocol.StatusForbidden, protocol.StatusBadRequest, protocol.StatusUnsupported,
				protocol.StatusPreconditionFailed:
				if !errors.Is(err, client.ErrOutcomeUnknown) {
					return err // decided, and not done
				}
			}
			out.delivered = true
			if out.f == nil {
				return fmt.Errorf("%w; if authentication is on now, the administrator's secret may be %s", err, secret)
			}
			return fmt.Errorf("%w; if authentication is on now, the administrator's secret may be the one in %s", err, *file)
		}
		if t.ID == "" {
			return inv.printer().message(row{{"on", "auth on", true}}, "auth is on")
		}
		t.Secret = secret
		return out.report(t, "auth is on")
	})
	return c
}

func authDisableCmd(a *app) *cobra.Command {
	c := command("disable", "Disable authentication",
		`Disable authentication: every client may do everything. Tokens and rights are kept for the next
enable. While authentication is on, this is refused without --force.`)
	c.Example = "  signalbox auth disable --force --reason 'the administrators lost their tokens'"
	g := addGuard(c, "auth disable")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, _ []string) error {
		if err := g.check(); err != nil {
			return err
		}
		err := c.WithReason(g.reason).DisableAuth(inv.ctx, g.force)
		return inv.report(err, row{{"on", "auth on", false}}, "authentication is off: every client may do everything")
	})
	return c
}

func tokenRow(t *protocol.AuthToken) row {
	return row{{"id", "token", t.ID}, {"identity", "identity", t.Identity},
		{"created_at", "created", timestamp{wallTime(t.CreatedAtMS)}},
		{"used_at", "last used", timestamp{wallTime(t.UsedAtMS)}},
		{"expires_at", "expires", expiry{wallTime(t.ExpiresAtMS)}}}
}

// expiry is when something expires: RFC 3339 in JSON, null for never.
type expiry struct{ time.Time }

// MarshalJSON writes it as a timestamp.
func (e expiry) MarshalJSON() ([]byte, error) { return timestamp(e).MarshalJSON() }

// String is for tables.
func (e expiry) String() string {
	switch left := time.Until(e.Time); {
	case e.IsZero():
		return "never"
	case left <= 0:
		return "expired " + terminal.Age(-left) + " ago"
	default:
		return "in " + terminal.Age(left)
	}
}

func authListCmd(a *app) *cobra.Command {
	c := command("ls", "Show whether authentication is on, the tokens, the trusts and the rights",
		`Show whether authentication is on, the tokens, when each was last used and when it expires, the
trusts and the rights. A use is shown within a minute of the first one, and then to the hour.`)
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, _ []string) error {
		s, err := c.Auth(inv.ctx)
		if err != nil {
			return err
		}
		return inv.printer().item(row{{"on", "auth on", s.Enabled}, {"tokens", "tokens", rowsOf(s.Tokens, tokenRow)},
			{"trusts", "trusts", rowsOf(s.Trusts, trustRow)}, {"rights", "rights", rowsOf(s.Rights, rightRow)}})
	})
	return c
}

func tokenCreateCmd(a *app) *cobra.Command {
	c := command("create IDENTITY", "Create a token and print its secret once",
		`Create a token for an identity. Its secret is printed, or written to --secret-file, only now; the
cluster stores a hash. To replace it, create a second token, replace the file, then revoke the first.`)
	c.Example = "  signalbox auth create billing --secret-file billing-token"
	id := c.Flags().String("id", "", "Id of the token, used to revoke it, up to 64 bytes (default: generated).")
	expires := c.Flags().String("expires", "never",
		"How long the token is good for, such as 720h, or never; then instances refuse it and close its connections.")
	file := secretFlag(c)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		var opts []admin.TokenOption
		if *expires != "never" {
			d, err := duration("expires", *expires)
			if err != nil {
				return err
			}
			if d <= 0 {
				return usagef("--expires %s is not above 0; give a duration such as 720h, or never", *expires)
			}
			opts = append(opts, admin.Expires(time.Now().Add(d)))
		}
		out, err := newSecretWriter(inv, *file)
		if err != nil {
			return err
		}
		defer out.close()
		c, err := inv.admin()
		if err != nil {
			return err
		}
		t, err := c.CreateToken(inv.ctx, *id, args[0], opts...)
		if err != nil {
			return err
		}
		if err := out.write(t.Secret); err != nil {
			return fmt.Errorf("%w; revoke token %s and create another one", err, terminal.Sanitize(t.ID))
		}
		return out.report(t, fmt.Sprintf("created token %s for %s", t.ID, t.Identity))
	})
	return c
}

func tokenRevokeCmd(a *app) *cobra.Command {
	c := command("revoke TOKEN-ID", "Revoke a token",
		"Revoke a token and close the connections that use it. The rights of its identity stay.")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		err := c.RevokeToken(inv.ctx, args[0])
		return inv.report(err, row{{"id", "token", args[0]}}, "revoked token %s", args[0])
	})
	return c
}

func grantCmd(a *app) *cobra.Command {
	c := command("grant IDENTITY PATH RIGHT", "Grant an identity a right at a path and below",
		`Grant an identity a right at a path and below. It replaces the grant for the same path. / stands
for everything, the cluster included.

  read   start sessions, describe, list, watch; give back what a session of its own holds
  use    read, and create, update, acquire, join
  admin  use, and resize, delete, kill, change nodes; on / also the cluster and authentication
  none   no right, even where a shorter path grants one`)
	c.Example = "  signalbox auth grant billing /billing use"
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		r, err := c.Grant(inv.ctx, args[0], args[1], args[2])
		if err != nil {
			return err
		}
		return printGrant(inv, r, func() (exists, known bool, err error) {
			if exists, err = nodeExists(inv, r.Path); err == nil {
				known, err = identityExists(inv, c, r.Identity)
			}
			return exists, known, err
		})
	})
	return c
}

// printGrant prints a grant that was made. lookUp reports whether its path and its identity exist;
// that it fails is no reason to say that the grant failed.
func printGrant(inv *invocation, r *admin.Right, lookUp func() (exists, known bool, err error)) error {
	line, text := rightRow(r), "%s has the right %s at %s and below"
	exists, known, err := lookUp()
	if err != nil {
		inv.note("signalbox: granted; whether the path and the identity exist could not be checked: %s\n",
			terminal.Sanitize(err.Error()))
		return inv.printer().message(line, text, r.Identity, r.Right, r.Path)
	}
	if !exists {
		text += "; there is no node at that path or below it yet; `signalbox node ls` lists the nodes"
	}
	if !known {
		text += "; no token has that identity yet; `signalbox auth ls` lists the tokens"
	}
	line = append(line, field{"exists", "", exists}, field{"identity_exists", "", known})
	return inv.printer().message(line, text, r.Identity, r.Right, r.Path)
}

// identityExists reports whether a client can have an identity: one of a token, one of a
// certificate, or the one of clients without credentials.
func identityExists(inv *invocation, c *admin.Client, identity string) (bool, error) {
	if strings.HasPrefix(identity, "cert:") || identity == "anonymous" {
		return true, nil
	}
	s, err := c.Auth(inv.ctx)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(s.Tokens, func(t protocol.AuthToken) bool { return t.Identity == identity }) ||
		slices.ContainsFunc(s.Trusts, func(t protocol.AuthTrust) bool {
			return slices.ContainsFunc(t.Rules, func(r protocol.AuthTrustRule) bool {
				return r.As == identity || strings.Contains(r.As, "{")
			})
		}), nil
}

// nodeExists reports whether there is a node at a path or below it.
func nodeExists(inv *invocation, path string) (bool, error) {
	c, err := inv.client()
	if err != nil {
		return false, err
	}
	for n, err := range admin.Nodes(c).List(inv.ctx, path) {
		if err != nil {
			return false, err
		}
		if path == "/" || n.Path == path || strings.HasPrefix(n.Path, path+"/") {
			return true, nil
		}
	}
	return path == "/", nil
}

func revokeCmd(a *app) *cobra.Command {
	c := command("ungrant IDENTITY PATH", "Remove the grant of a path",
		"Remove the grant of an identity for a path. The grant of a shorter path decides then; to override that too, grant none.")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		err := c.Revoke(inv.ctx, args[0], args[1])
		return inv.report(err, row{{"identity", "identity", args[0]}, {"path", "path", args[1]}},
			"%s has no grant at %s any more", args[0], args[1])
	})
	return c
}

func secretFlag(c *cobra.Command) *string {
	return c.Flags().String("secret-file", "",
		"New file for the secret, created with mode 0600; an existing file is an error (default: standard output).")
}

// secretWriter writes a secret to a file or to standard output. It creates the file first: without
// it, no token is created.
type secretWriter struct {
	inv       *invocation
	path      string
	f         *os.File
	delivered bool
}

func newSecretWriter(inv *invocation, path string) (*secretWriter, error) {
	o := &secretWriter{inv: inv, path: path}
	if path == "" {
		return o, nil
	}
	var err error
	if o.f, err = os.OpenFile(filepath.Clean(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, usagef("cannot create --secret-file: %v", err)
	}
	return o, nil
}

func (o *secretWriter) write(secret string) error {
	if o.f == nil {
		return nil
	}
	_, err := io.WriteString(o.f, secret+"\n")
	if err := errors.Join(err, o.f.Sync()); err != nil {
		return fmt.Errorf("write the secret: %w", err)
	}
	return nil
}

// report prints the token, with the secret unless a file has it.
func (o *secretWriter) report(t *protocol.AuthToken, what string) error {
	line := row{{"id", "token", t.ID}, {"identity", "identity", t.Identity}}
	if o.f == nil {
		return o.inv.printer().message(append(line, field{"secret", "secret", t.Secret}),
			"%s; its secret, which is not shown again: %s", what, t.Secret)
	}
	o.delivered = true
	return o.inv.printer().message(line, "%s; its secret is in %s", what, o.path)
}

// close removes the file if its secret was not delivered.
func (o *secretWriter) close() {
	if o.f != nil {
		_ = o.f.Close()
		if !o.delivered {
			_ = os.Remove(o.path)
		}
	}
}

func rightRow(r *protocol.AuthRight) row {
	return row{{"identity", "identity", r.Identity}, {"path", "path", r.Path}, {"right", "right", r.Right}}
}

// adminVerbs need the right admin on their node's path.
var adminVerbs = []string{
	"config delete", "limit alter", "limit create", "limit delete", "process alter", "process evict", "process force",
	"rollout alter", "rollout create", "rollout delete", "rollout evict", "rollout exclude", "rollout include",
	"rollout pause",
	"rollout promote", "rollout reelect", "rollout resume", "rollout rollback",
	"sem alter", "sem delete", "sem drain", "sem force-release", "sem resize", "sem undrain", "session kill",
}

// rightsHint says which right the whole verb needs; begun is the one for what it has begun, read or
// use. The refusal names what one step lacks, and the next step may need more.
func rightsHint(verb, begun, node string) string {
	group, _, _ := strings.Cut(verb, " ")
	switch group {
	case "lock", "once", "sem", "elect", "service", "config", "rollout", "process", "limit", "session":
	default:
		return "An administrator gives rights with `signalbox auth grant`."
	}
	right, covers := "use", ", which includes read"
	switch {
	case slices.Contains(adminVerbs, verb):
		right, covers = "admin", ", which includes read and use"
	case begun == "read":
		right, covers = "read", ""
	}
	return fmt.Sprintf("`signalbox %s` needs the right %s at %s%s. An administrator gives it with `signalbox auth grant IDENTITY %s %s`.",
		verb, right, node, covers, node, right)
}
