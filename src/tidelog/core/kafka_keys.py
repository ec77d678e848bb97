"""Kafka's broker keys that tidelog knows by name and does not support.

The broker accepts an unsupported key with a warning that names the key. A server.properties written
for Kafka thus works, and operators learn which settings have no effect. An unsupported key is
refused if ignoring it would leave the cluster unprotected, or if it asks for another kind of
cluster (KRaft). Source: the ConfigDef of Kafka 3.9. `core.config` declares the supported keys.
"""

from __future__ import annotations

#: Family (prefix of keys) -> the remainder of each key's name.
_UNSUPPORTED_BY_FAMILY: dict[str, str] = {
    "": """
        alter.config.policy.class.name alter.config.policy.kraft.compatibility.enable
        authorizer.class.name
        auto.include.jmx.reporter background.threads
        broker.heartbeat.interval.ms broker.id.generation.enable broker.session.timeout.ms
        client.quota.callback.class connection.failed.authentication.delay.ms
        connections.max.reauth.ms control.plane.listener.name
        create.topic.policy.class.name delete.records.purgatory.purge.interval.requests
        early.start.listeners eligible.leader.replicas.enable
        fetch.purgatory.purge.interval.requests
        initial.broker.registration.timeout.ms kafka.metrics.polling.interval.secs
        kafka.metrics.reporters
        max.connection.creation.rate
        max.connections.per.ip max.connections.per.ip.overrides
        metric.reporters metrics.num.samples
        metrics.recording.level metrics.sample.window.ms num.io.threads
        num.network.threads num.recovery.threads.per.data.dir
        principal.builder.class process.roles producer.id.expiration.check.interval.ms
        producer.purgatory.purge.interval.requests
        queued.max.requests quota.window.num quota.window.size.seconds
        remote.fetch.max.wait.ms
        replica.selector.class replica.socket.receive.buffer.bytes
        reserved.broker.max.id security.providers server.max.startup.time.ms
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
        socket.listen.backlog.size socket.receive.buffer.bytes socket.send.buffer.bytes
        telemetry.max.bytes transactional.id.expiration.ms
        unclean.leader.election.interval.ms unstable.api.versions.enable
        unstable.feature.versions.enable
    """,
    "controller.": """
        listener.names quorum.append.linger.ms quorum.bootstrap.servers
        quorum.election.backoff.max.ms quorum.election.timeout.ms quorum.fetch.timeout.ms
        quorum.request.timeout.ms quorum.retry.backoff.ms quorum.voters quota.window.num
        quota.window.size.seconds
    """,
    "delegation.token.": """
        expiry.check.interval.ms expiry.time.ms master.key max.lifetime.ms secret.key
    """,
    "group.": """
        consumer.assignors consumer.heartbeat.interval.ms
        consumer.max.heartbeat.interval.ms consumer.max.session.timeout.ms
        consumer.max.size consumer.migration.policy consumer.min.heartbeat.interval.ms
        consumer.min.session.timeout.ms consumer.session.timeout.ms
        coordinator.append.linger.ms coordinator.new.enable
        coordinator.rebalance.protocols coordinator.threads share.delivery.count.limit
        share.enable share.heartbeat.interval.ms share.max.groups
        share.max.heartbeat.interval.ms share.max.record.lock.duration.ms
        share.max.session.timeout.ms share.max.size share.min.heartbeat.interval.ms
        share.min.record.lock.duration.ms share.min.session.timeout.ms
        share.partition.max.record.locks share.record.lock.duration.ms
        share.session.timeout.ms
    """,
    "log.": """
        cleaner.threads flush.scheduler.interval.ms
        flush.start.offset.checkpoint.interval.ms initial.task.delay.ms
    """,
    "offsets.": """
        commit.required.acks
    """,
    "password.encoder.": """
        cipher.algorithm iterations key.length keyfactory.algorithm old.secret secret
    """,
    "remote.log.": """
        index.file.cache.total.size.bytes manager.copier.thread.pool.size
        manager.copy.max.bytes.per.second manager.copy.quota.window.num
        manager.copy.quota.window.size.seconds manager.expiration.thread.pool.size
        manager.fetch.max.bytes.per.second manager.fetch.quota.window.num
        manager.fetch.quota.window.size.seconds manager.task.interval.ms
        manager.task.retry.backoff.max.ms manager.task.retry.backoff.ms
        manager.task.retry.jitter manager.thread.pool.size
        metadata.custom.metadata.max.bytes metadata.manager.class.name
        metadata.manager.class.path metadata.manager.impl.prefix
        metadata.manager.listener.name reader.max.pending.tasks reader.threads
        storage.manager.class.name storage.manager.class.path storage.manager.impl.prefix
        storage.system.enable
    """,
    "sasl.": """
        client.callback.handler.class enabled.mechanisms jaas.config kerberos.kinit.cmd
        kerberos.min.time.before.relogin kerberos.principal.to.local.rules
        kerberos.service.name kerberos.ticket.renew.jitter
        kerberos.ticket.renew.window.factor login.callback.handler.class login.class
        login.connect.timeout.ms login.read.timeout.ms login.refresh.buffer.seconds
        login.refresh.min.period.seconds login.refresh.window.factor
        login.refresh.window.jitter login.retry.backoff.max.ms login.retry.backoff.ms
        mechanism mechanism.controller.protocol mechanism.inter.broker.protocol
        oauthbearer.clock.skew.seconds oauthbearer.expected.audience
        oauthbearer.expected.issuer oauthbearer.header.urlencode
        oauthbearer.jwks.endpoint.refresh.ms
        oauthbearer.jwks.endpoint.retry.backoff.max.ms
        oauthbearer.jwks.endpoint.retry.backoff.ms oauthbearer.jwks.endpoint.url
        oauthbearer.scope.claim.name oauthbearer.sub.claim.name
        oauthbearer.token.endpoint.url server.callback.handler.class
        server.max.receive.size
    """,
    "ssl.": """
        allow.dn.changes allow.san.changes cipher.suites client.auth enabled.protocols
        endpoint.identification.algorithm engine.factory.class key.password
        keymanager.algorithm keystore.certificate.chain keystore.key keystore.location
        keystore.password keystore.type principal.mapping.rules protocol provider
        secure.random.implementation trustmanager.algorithm truststore.certificates
        truststore.location truststore.password truststore.type
    """,
    "transaction.": """
        abort.timed.out.transaction.cleanup.interval.ms max.timeout.ms
        partition.verification.enable remove.expired.transaction.cleanup.interval.ms
        state.log.load.buffer.size state.log.min.isr state.log.num.partitions
        state.log.replication.factor state.log.segment.bytes
    """,
    "zookeeper.": """
        clientCnxnSocket max.in.flight.requests metadata.migration.enable
        metadata.migration.min.batch.size ssl.cipher.suites ssl.crl.enable
        ssl.enabled.protocols ssl.keystore.password ssl.keystore.type ssl.ocsp.enable
        ssl.protocol ssl.truststore.password ssl.truststore.type
    """,
    "metadata.": """
        log.dir log.max.record.bytes.between.snapshots log.max.snapshot.interval.ms
        log.segment.bytes log.segment.min.bytes log.segment.ms max.idle.interval.ms
        max.retention.bytes max.retention.ms
    """,
}

#: Kafka 3.9's broker keys that tidelog does not support.
UNSUPPORTED_KEYS: frozenset[str] = frozenset(
    family + rest for family, words in _UNSUPPORTED_BY_FAMILY.items() for rest in words.split()
)

#: The prefix of keys for the security of one listener.
LISTENER_KEY_PREFIX = "listener.name."

#: For each key: the only values with which the broker starts, and the advice that the error for any
#: other value gives.
REFUSED_KEYS: dict[str, tuple[tuple[str, ...], str]] = {
    "authorizer.class.name": (
        ("",),
        "authorization is not supported yet, and leaving it out would open the cluster to everyone",
    ),
    "config.providers": (
        ("",),
        "configuration providers are Java classes: write the values themselves, or set them in the"
        " environment (TIDELOG_ and the key)",
    ),
    "process.roles": (
        ("",),
        "this broker does not run KRaft: remove process.roles and set metadata.store=embedded:DIR",
    ),
}
