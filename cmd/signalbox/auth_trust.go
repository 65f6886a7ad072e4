package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/server/operator"
	"github.com/signalbox-dev/signalbox/server/trust"
)

func trustCmd(a *app) *cobra.Command {
	return group("trust", "Trusts: tokens that a platform signs",
		`A trust says which issuer's signed tokens (JSON Web Tokens) count as credentials, and which identity
their subjects have here. A client shows such a token like any other: --token-file, or
Authorization: Bearer. Rights are granted to the identity: auth grant.

A token counts if a key of the trust signed it (RS256, PS256, ES256, ES384 or EdDSA), its iss is the
trust's issuer, its aud has the trust's audience, it has a sub, and it is valid for a day at most.`,
		trustListCmd(a), trustCreateCmd(a), trustMapCmd(a), trustKeysCmd(a), trustTestCmd(a), trustDeleteCmd(a))
}

func trustRow(t *protocol.AuthTrust) row {
	var rules, keys []string
	for _, r := range t.Rules {
		rules = append(rules, r.String())
	}
	for _, k := range t.KeyIDs {
		keys = append(keys, strings.TrimSpace(k.ID+" "+k.Type))
	}
	issuer := t.Issuer
	if t.SPIFFE != "" {
		issuer = strings.TrimSpace("spiffe://" + t.SPIFFE + " " + issuer)
	}
	return row{{"name", "trust", t.Name}, {"issuer", "issuer", issuer}, {"audience", "audience", t.Audience},
		{"rules", "rules", rules}, {"keys", "keys", keys}, {"keys_at", "keys since", timestamp{wallTime(t.KeysAtMS)}}}
}

func trustListCmd(a *app) *cobra.Command {
	c := command("ls", "Show the trusts, with their rules and the ids of their keys", "")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, _ []string) error {
		s, err := c.Auth(inv.ctx)
		if err != nil {
			return err
		}
		return inv.printer().list(rowsOf(s.Trusts, trustRow), "no trusts")
	})
	return c
}

func trustCreateCmd(a *app) *cobra.Command {
	c := command("create NAME", "Create a trust, without rules",
		`Create a trust. No token counts by it until it has a rule: auth trust map.

The cluster fetches the keys of an issuer that is an https address, by OpenID Connect: now, each 15
minutes, and when a token names a key that is not known. If that fails, the former keys count. Else give
keys by auth trust keys, which the cluster then leaves as they are.

With --spiffe, sub has to be a SPIFFE ID of the domain, and --issuer may be left out. A client
certificate with such an ID as its only URI is the same subject; its common name then does not count.`)
	c.Example = `  signalbox auth trust create github --issuer https://token.actions.githubusercontent.com
  signalbox auth trust create spire --spiffe example.org`
	var t admin.Trust
	c.Flags().StringVar(&t.Issuer, "issuer", "", "Issuer, exactly as in the claim iss of its tokens.")
	c.Flags().StringVar(&t.SPIFFE, "spiffe", "", "SPIFFE trust domain, such as example.org.")
	c.Flags().StringVar(&t.Audience, "audience", defaultAudience, "Audience that the claim aud of a token must have.")
	ca := c.Flags().String("ca-file", "",
		"File with the authorities of the issuer's certificate; its contents are kept. Default: those of the instances' systems.")
	c.Flags().StringVar(&t.BearerFile, "bearer-file", "",
		"File on the instances with a token for the issuer. In a pod its own cluster's issuer gets the service account's.")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		t.Name = args[0]
		if t.Issuer == "" && t.SPIFFE == "" {
			return usagef("no --issuer; give that of the platform's tokens, or --spiffe")
		}
		if *ca != "" {
			text, err := file.Read(*ca, operator.MaxTrustKeys)
			if err != nil {
				return usagef("cannot read --ca-file: %v", err)
			}
			t.CA = string(text)
		}
		made, err := c.CreateTrust(inv.ctx, t)
		if err != nil {
			return err
		}
		next := "give it rules, by auth trust map"
		switch {
		case made.Problem != "":
			next = "its keys cannot be fetched, which is tried again: " + terminal.Sanitize(made.Problem)
		case len(made.KeyIDs) == 0:
			next = "give it keys, by auth trust keys, and rules"
		}
		return inv.printer().message(trustRow(made), "created trust %s; %s", t.Name, next)
	})
	return c
}

func trustMapCmd(a *app) *cobra.Command {
	c := command("map NAME", "Add a rule that gives tokens an identity",
		`Add a rule behind those that a trust has. The first rule that matches a token gives the identity; a
token that none matches is refused.

--if CLAIM=PATTERN has to match, each of them. In a pattern * stands for any run of characters, / too.
a.b is the claim b inside the object a. Of a claim that is a list, one element has to match. Numbers
are compared as the token writes them.

--as is the identity. '{CLAIM}' in it stands for the claim's value: a program that can choose the value
chooses its identity, but for admin.`)
	c.Example = "  signalbox auth trust map ci --if repository=octo/* --if ref=refs/heads/main --as ci-main"
	conditions := c.Flags().StringArray("if", nil, "CLAIM=PATTERN that a token must match; may be given several times. Required.")
	as := c.Flags().String("as", "", "Identity of the tokens that match. Required.")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		rule, err := trustRule(*conditions, *as)
		if err != nil {
			return err
		}
		t, err := c.MapTrust(inv.ctx, args[0], rule)
		if err != nil {
			return err
		}
		return inv.printer().message(row{{"name", "trust", t.Name}, {"rule", "rule", len(t.Rules)}, {"as", "as", rule.As}},
			"rule %d of trust %s gives %s", len(t.Rules), t.Name, rule.As)
	})
	return c
}

func trustKeysCmd(a *app) *cobra.Command {
	c := command("keys NAME", "Replace the keys of a trust",
		`Replace the keys of a trust by those of a file: a JSON Web Key Set with up to 32 public keys, as the
issuer publishes it. Keys that cannot sign tokens are left out. Connections that came in by a key that
is gone are closed.`)
	c.Example = "  signalbox auth trust keys ci --from jwks.json"
	from := c.Flags().String("from", "", "File with the keys, up to 64 KiB. Required.")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		if *from == "" {
			return usagef("no --from; give a file with a JSON Web Key Set")
		}
		keys, err := file.Read(*from, operator.MaxTrustKeys)
		if err != nil {
			return usagef("cannot read --from: %v", err)
		}
		if _, _, err := trust.ReadKeys(keys); err != nil {
			return usagef("--from %s cannot be used: %v", *from, err)
		}
		t, err := c.SetTrustKeys(inv.ctx, args[0], keys)
		if err != nil {
			return err
		}
		return inv.printer().message(row{{"name", "trust", t.Name}, {"keys", "keys", len(t.KeyIDs)}},
			"trust %s has keys: %d", t.Name, len(t.KeyIDs))
	})
	return c
}

func trustTestCmd(a *app) *cobra.Command {
	c := command("test NAME", "Check a token, and show its identity or what is wrong with it",
		`Check a token by a trust, and show the identity that it has, or which check fails by which value. The
token does not leave this machine, whose clock counts. Of GitHub's and GitLab's tokens and those of
pods, a copy works until it expires.`)
	c.Example = "  signalbox auth trust test ci --from token.jwt"
	path := c.Flags().String("from", "", "File with the token. Required.")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		if *path == "" {
			return usagef("no --from; give a file with a token")
		}
		token, err := client.TokenFile(*path)(inv.ctx)
		if err != nil {
			return usagef("cannot read --from: %v", err)
		}
		t, err := c.Trust(inv.ctx, args[0])
		if err != nil {
			return err
		}
		x, err := operator.CheckToken(t, token, time.Now())
		if err != nil {
			return fmt.Errorf("refused: %s", terminal.Sanitize(err.Error()))
		}
		left := terminal.Age(time.Until(x.Expires))
		return inv.printer().message(row{{"identity", "identity", x.Identity}, {"rule", "rule", x.Rule},
			{"subject", "subject", x.Subject}, {"expires_at", "expires", expiry{x.Expires}}},
			"%s, by rule %d; the token of %s is valid for %s", x.Identity, x.Rule, x.Subject, left)
	})
	return c
}

func trustDeleteCmd(a *app) *cobra.Command {
	c := command("delete NAME", "Delete a trust",
		"Delete a trust and close the connections that came in by it. The rights of its identities stay.")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, args []string) error {
		err := c.DeleteTrust(inv.ctx, args[0])
		return inv.report(err, row{{"name", "trust", args[0]}}, "deleted trust %s", args[0])
	})
	return c
}
