-- Recurring rules: one row each, written by compare-and-set.

-- rules_of: The rows of ids.
SELECT id, body FROM recurring WHERE id IN (SELECT value FROM {each:ids} AS listed)

-- insert_rule: Write a rule that is not there.
INSERT INTO recurring (revision, wake, managed, body, id) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING RETURNING 1

-- update_rule: Write a rule that still has the revision that was read.
UPDATE recurring SET revision = ?, wake = ?, managed = ?, body = ? WHERE id = ? AND revision = ?
RETURNING 1

-- delete_rule: Delete a rule that still has the revision that was read.
DELETE FROM recurring WHERE id = ? AND revision = ? RETURNING 1

-- due_rules: Rules to look at, the earliest first.
SELECT body FROM recurring WHERE wake <= ? ORDER BY wake, id LIMIT ?

-- first_rule: When the first rule of all is to be looked at.
SELECT min(wake) FROM recurring WHERE wake IS NOT NULL

-- next_rule: When the first rule is to be looked at that is not due.
SELECT min(wake) FROM recurring WHERE wake > ?

-- rules_after: A page of rules by their ids.
SELECT body FROM recurring WHERE id > ? ORDER BY id LIMIT ?

-- managed_rules: Rules that settings manage.
SELECT id FROM recurring WHERE managed = 1 ORDER BY id
