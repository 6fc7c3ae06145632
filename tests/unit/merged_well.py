"""Good merges of small stories, written by hand: paraphrased, with pronouns, joined sentences and facts in another order."""

# signs of other scripts are meant

from __future__ import annotations

GOOD: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("Anna lives in Porto. Ben lives in Lyon.", "Anna moved to Berlin on 12 March 2026. Ben has 2 dogs."),
        "Anna used to live in Porto, but on 12 March 2026 she moved to Berlin. Ben, who has two dogs, lives in Lyon.",
    ),
    (
        ("Mia works for Siemens in Munich. Her brother Leo studies in Vienna.", "Leo moved to Graz. Mia visited him in Graz with her dog Bello."),
        "Mia works for Siemens in Munich. Leo, her brother, studied in Vienna and later moved to Graz, where Mia and her dog Bello visited him.",
    ),
    (
        ("Tom and Sara bought a flat in Leeds for 210000 pounds.", "Sara works at the Royal Infirmary. Tom teaches at Ilkley School and earns 2800 pounds a month."),
        "Sara works at the Royal Infirmary. Tom earns 2800 pounds a month as a teacher at Ilkley School. Together they bought a flat in Leeds, for 210000 pounds.",
    ),
    (
        ("Carol plays the cello. Dave, her husband, plays the piano.", "Carol and Dave gave a concert in Bath. Eve came from Bristol to hear them.", "Eve took 14 lessons with Carol."),
        "Carol plays the cello, and her husband Dave plays the piano. When they gave a concert in Bath, Eve came from Bristol to hear them. Eve later took 14 lessons with Carol.",
    ),
    (
        ("2026-08-10 09:00\nNora: I rent a flat in Porto for 900 euros a month.\nJack: Nice! I live in Dublin with my sister Kate.\nNora: How is Kate?\nJack: She works at Google and has 3 cats.",),
        "Nora rents a flat in Porto for 900 euros a month. Jack lives in Dublin with his sister Kate, who works at Google and has three cats.",
    ),
    (
        ("Priya adopted a dog named Rex. Omar adopted two cats, Nala and Simba.", "Rex bit Omar once. Priya apologised and paid 60 dollars.", "Omar moved to Austin. Priya stayed in Denver."),
        "Priya stayed in Denver with her dog Rex, while Omar moved to Austin. Omar has two cats, Nala and Simba, and was once bitten by Rex; Priya apologised and paid 60 dollars.",
    ),
    (
        ("Ruth was born in Haifa. She met Paul in London in 2019.", "Paul and Ruth married in Rome. They live in Turin now.", "Paul sold his company to Fiat."),
        "Born in Haifa, Ruth met Paul in London in 2019. The two married in Rome and now live in Turin. Paul has sold his company to Fiat.",
    ),
    (
        ("Liam lives in Galway. Emma lives there too.", "Emma's cousin Finn runs 10 km every day. Liam runs 5 km a day with Finn."),
        "Emma and Liam both live in Galway. Finn, a cousin of Emma, runs 10 km every day, and Liam joins him for 5 km.",
    ),
    (
        ("Julia lives in Rome. Marco lives in Milan.", "Marco moved in with Julia.", "Julia started a course at Sapienza."),
        "Julia lives in Rome, and Marco, who used to live in Milan, moved in with her. Julia started a course at Sapienza.",
    ),
    (
        ("Anna wohnt in Köln und arbeitet bei Bosch. Ben wohnt in Mainz.", "Ben zog am 3. Rin 2026 nach Ulm. Anna besuchte ihn dort mit ihrem Hund Rolf."),
        "Anna wohnt in Köln und arbeitet bei Bosch. Ben wohnte zuerst in Mainz und zog am 3. Rin 2026 nach Ulm. Dort besuchte Anna ihn mit ihrem Hund Rolf.",
    ),
    (
        ("Lena zahlt 900 Euro Miete im Monat. Ihre Schwester Ida zahlt 650 Euro.", "Ida ist nach Wien gezogen. Lena bleibt in Graz.", "Lena hat drei Katzen."),
        "Lena, die drei Katzen hat, bleibt in Graz und zahlt monatlich 900 Euro Miete. Ihre Schwester Ida, deren Miete 650 Euro beträgt, ist nach Wien gezogen.",
    ),
    (
        ("Jonas und Petra haben in Bonn geheiratet. Petra arbeitet bei Telekom.", "Jonas hat sein Motorrad für 4200 Euro verkauft. Karl hat es gekauft."),
        "Petra, die bei Telekom arbeitet, und Jonas haben in Bonn geheiratet. Karl hat das Motorrad von Jonas für 4200 Euro gekauft.",
    ),
    (
        ("Clara lernt Geige bei Frau Schulz. Felix spielt Fußball in Potsdam.", "Felix hat sich das Bein gebrochen. Clara hat ihn in der Klinik besucht."),
        "Felix spielt Fußball in Potsdam; nachdem er sich das Bein gebrochen hatte, besuchte Clara ihn in der Klinik. Clara lernt Geige bei Frau Schulz.",
    ),
    (
        ("Ana vive en Sevilla. Luis vive en Madrid y tiene 2 gatos.", "Ana se mudó a Bilbao el 4 de abril de 2026. Luis la visitó en Bilbao."),
        "Ana vivía en Sevilla hasta que se mudó a Bilbao el 4 de abril de 2026, donde Luis la visitó. Luis, que vive en Madrid, tiene dos gatos.",
    ),
    (
        ("Carmen trabaja en Telefónica y gana 2300 euros al mes. Su hermano Pablo estudia en Granada.", "Pablo paga 350 euros de alquiler. Carmen le ayuda."),
        "Carmen gana 2300 euros al mes en Telefónica. Pablo, su hermano, estudia en Granada y paga 350 euros de alquiler; Carmen le ayuda.",
    ),
    (
        ("Elena y Jorge adoptaron un perro, Trasto. Viven en Valencia.", "Marta, amiga de Elena, vive en Cádiz.", "Jorge perdió su trabajo en Ford."),
        "Elena y Jorge viven en Valencia con su perro Trasto. Jorge perdió su trabajo en Ford. Marta, una amiga de Elena, vive en Cádiz.",
    ),
    (
        ("Claire habite à Lyon. Marc habite à Lille.", "Claire a déménagé à Nantes en mars. Marc a 3 enfants.", "Marc a vendu sa Peugeot pour 5200 euros."),
        "Claire habitait à Lyon avant de déménager à Nantes en mars. Marc, qui habite à Lille, a trois enfants et a vendu sa Peugeot pour 5200 euros.",
    ),
    (
        ("Luc et Zoé vivent ensemble à Dijon. Zoé travaille chez Renault.", "Le frère de Zoé, Hugo, habite à Reims. Luc a couru 12 km avec Hugo."),
        "Zoé, qui travaille chez Renault, vit avec Luc à Dijon. Son frère Hugo habite à Reims ; il a couru 12 km avec Luc.",
    ),
    (
        ("Sophie apprend le violon depuis 2021. Elle paie 40 euros par semaine.", "Paul, son mari, est né à Gand. Sophie est née à Metz."),
        "Née à Metz, Sophie apprend le violon depuis 2021 et paie 40 euros par semaine. Son mari Paul est né à Gand.",
    ),
    (
        ("王明住在上海。李娜住在北京，有两只猫。", "王明搬到了杭州。李娜每月挣8000元。"),
        "王明原来住在上海，后来搬到了杭州。李娜住在北京，每月挣8000元，有两只猫。",
    ),
    (
        ("张伟和刘芳去年结婚了，现在住在成都。", "刘芳在医院工作。张伟每天跑5公里。"),
        "张伟和刘芳去年结婚，住在成都。张伟每天跑5公里，刘芳在医院工作。",
    ),
    (
        ("Grace earns 5000 dollars a month at Boeing. Hank earns 3000 dollars a month.", "Hank quit and joined Boeing too. He lives in Tacoma with Ivy.", "Ivy is from Spokane and has a horse named Dusty."),
        "Both Grace and Hank work at Boeing: Grace earns 5000 dollars a month, Hank earned 3000 dollars a month before he quit. He lives with Ivy in Tacoma. Ivy comes from Spokane and owns a horse, Dusty.",
    ),
    (
        ("Oliver's mother Jane lives in York. Oliver lives in Hull.", "Jane broke her arm on 5 June 2026. Oliver stayed with her for 2 weeks.", "Oliver still lives in Hull, but is looking for a flat in York."),
        "Oliver lives in Hull and is looking for a flat in York, where his mother lives. On 5 June 2026 his mother Jane broke her arm, and he stayed with her for two weeks. He still lives in Hull.",
    ),
    (
        ("Yuki lives in Osaka. Ken lives in Kobe. Rin lives in Kyoto.", "Ken and Rin opened a bakery in Nara with 3 employees. Yuki lent them 9000 euros."),
        "Yuki, Ken and Rin live in Osaka, Kobe and Kyoto. In Nara, Ken opened a bakery with Rin; it has three employees, and Yuki lent them 9000 euros.",
    ),
)  # fmt: skip
